// Package run defines the records of runs. A run is the work on one prompt: it is claimed, attached
// to by attempts, and ended once. The package does not depend on the store or Temporal.
//
//	prompt ── Verdict: granted ──▶ claim (Run) ── Dispatch, attempt ──▶ Start … ── Ending ──▶ Ended
//	                                  │  ▲
//	                            Parking  Continuation       its session sleeps while a question is open
//
// A run that an attendant claims itself begins with a [Claim]. A [SteerTake] requests the prompts
// that its agent gets during the turn. [Losses] decides when a run has lost so many workers that no
// further one may attach. [View] is a run in the form for clients; it outlives the claims.
package run
