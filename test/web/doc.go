// Package web builds the packages of web/ as their users get them, and tests what needs no server. The tests against one are in
// package test.
package web
