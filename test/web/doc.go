// Package web builds the packages of web/ as users get them, and runs the tests that need no
// server. The tests against a server are in package test.
package web
