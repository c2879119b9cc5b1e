// Package orchestrator is the typed client of the session workflow: it rings,
// commands and asks. It holds no state and no policy; what a command means is
// decided in the workflow, and whether it may be given, in api.
//
//	Ring, Wake, Stop, Recover   signal-with-start: they reach a session whose
//	                            workflow was put away
//	Hibernate, Abort, Settings  signal: nothing to do where no workflow is open
//	State                       query, for debugging
//
// Every call has the deadline of its context and at most two seconds. An error is
// a *session.Fault: unavailable when Temporal does not answer in time,
// session_not_found when no workflow is open and the call needs one.
package orchestrator
