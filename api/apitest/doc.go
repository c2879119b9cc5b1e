// Package apitest has in-memory fakes of the API's dependencies: a store with a log, and a signaler
// that records its calls. Tests of the API and of its clients use them for conditions that real
// dependencies do not produce on demand: a log with a gap, a database that hangs, a lost workflow.
package apitest
