// Package test tests the whole system from outside: the built programs, a real Postgres, a real
// Temporal, the local Modal, and HTTP.
//
// The tests need the programs in bin/ (make build) and fail without them. Each stack is one
// `overwinter dev` with its own data directory and ports.
package test
