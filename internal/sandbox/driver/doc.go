// Package driver defines what a provider of sandboxes implements. Users call the concrete types of
// package sandbox, which validate, apply defaults, adopt sandboxes whose creation was not
// acknowledged, and confirm a death before they report it. A driver only forwards single calls to
// its provider and classifies errors.
//
// A driver is finished when the suite in package drivertest passes.
package driver
