// Package apitest has in-memory fakes of what the API depends on: a store with a log, and an
// signaler that records its calls. Tests of the API and of its clients use them for what real
// parts do not do on demand: a log with a gap, a database that hangs, a workflow that is lost.
package apitest
