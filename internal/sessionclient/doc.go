// Package sessionclient is the typed client of the session workflow: it signals and queries. It has
// no state and no policy; the session's row decides about a command before anything is signaled.
//
//	SignalPrompt, SignalCommands, SignalStop  signal-with-start: they reach a session
//	                                          whose workflow has completed
//	SignalSettings, SignalSandbox             signal: nothing to do where no workflow is open
//	State, CurrentRun                         queries
//
// Every call has the deadline of its context and at most two seconds. An error is a *failure.Error:
// unavailable if Temporal does not respond in time, session_not_found if no workflow is open and
// the call needs one.
package sessionclient
