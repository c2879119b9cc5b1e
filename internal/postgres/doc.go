// Package postgres keeps sessions.
package postgres
