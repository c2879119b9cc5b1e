// Package apitest has what the API stands on, in memory and by hand: a store with a
// log, and an orchestrator that notes what it is told. Tests of the API and of its
// clients bring about with them what real parts do not do on demand: a log with a
// gap, a database that hangs, a workflow that is lost.
package apitest
