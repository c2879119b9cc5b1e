// Package durable makes file changes survive a crash of the machine.
package durable
