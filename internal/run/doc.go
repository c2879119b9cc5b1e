// Package run has the records of runs. A run is the work on one prompt: it is claimed, attached to by attempts, and
// ended once. The package knows no store and no engine.
//
//	prompt ── Verdict: granted ──▶ claim (Run) ── Dispatch, attempt ──▶ Start … ── Ending ──▶ Ended
//	                                  │  ▲
//	                            Parking  Continuation       its session sleeps while a question is open
//
// A run that an attendant claims by itself begins with a [Claim]. The prompts that its agent takes while it works are
// a [SteerTake]. [Losses] says when a run has lost so many workers that no further one may attach. [View] is a run as
// clients see it; it outlives the claims.
package run
