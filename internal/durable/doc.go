// Package durable makes changes of files survive a crash of the machine.
package durable
