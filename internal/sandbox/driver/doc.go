// Package driver is what a provider of sandboxes implements. Users hold the concrete types of
// package sandbox, which validate, fill in defaults, adopt what a lost response has created and
// confirm a death before they report it; a driver only carries one call to its provider and names
// what went wrong.
//
// A driver is finished when the suite in package drivertest passes.
package driver
