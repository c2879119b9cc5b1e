// Package turn executes one turn: an attempt at a run attaches to the runner in the sandbox,
// delivers the prompt unless the runner has it, and translates the agent's output to events until
// the frame that ends the turn. The package does not depend on workflows: a caller
// claims the run for the attempt (RunAttach), runs the attempt, and records the outcome of the run
// (RunEnd).
//
//	exec attach ─▶ welcome ─▶ start ─▶ frames ─▶ translate, mask, limit ─▶ append ─▶ … ─▶ end ─▶ flush ─▶ RunEnd
//	(displaces)               (unless the runner has it)      (with the translator's state)      (with the last frames)
//
//	images     images in results, stored before the events that name them
//	attempt    one attempt: attach, deliver, follow, flush          question   questions of the agent, and the answers
//	link       bounded read-ahead of an open link                   files      changes of the workspace
//	links      links kept open between turns                        launch     how the agent is started; bind: where its keys go
//	greeting   the hello that is sent while the claim of a run is being committed
//	pace       the window of frames that an agent may print ahead
//	convert    events of frames: translator, mask, limiter          suspicion  frames that may have ended a worker
//	batch      frames that are committed together                   settle     the end of a run that no worker can end
//	segments   transcripts, and the end of them
//
// The exec of a link is kept for a minute after its turn (Links): the next turn on this worker
// reuses it with a new hello. Between the two turns it does not occupy the runner.
//
// # Invariants
//
//   - Events of frames, and the translator's state after the last of them, are committed together.
//     The end of a turn counts only once it is committed: by an append, or with the outcome of the
//     run (Result.Last). If the caller stores neither, the next attempt reads the frames again.
//   - Frames are committed in order, each once: the next attempt asks for those after the newest one.
//   - The transcripts of a turn are stored no later than its outcome: the caller stores the last segments in the transaction
//     that ends the run (Result.Segments).
//   - A prompt is delivered at most once: the runner's journal records the run.
//   - Everything is written with the attempt's token. Nothing is written once a newer attempt has taken it.
//   - An answer to a question is stored before it is sent to the agent.
//   - A run that only waits for people is parked: the attempt ends, and the run continues in
//     another sandbox, as its next part, with a message that contains the answers. The blocks that
//     the previous part left open are closed first.
//   - Frames in memory are bounded for each turn and for all turns of a worker; the others wait in the runner's
//     journal, and output beyond the turn's window in the agent's pipe.
//   - The text of events is masked before it is limited, and a suffix that may begin a secret's value is held back.
//
// # When things fail
//
//	what fails                              what the caller gets                        what it does
//	the link, the provider, Postgres        a transient error                           another attempt, which resumes
//	a newer attempt has the run             TakenOver                                   reads the run
//	the runner was interrupted with the run Error, DeliveryUnknown                      the prompt is unknown
//	a frame out of order, oversized state   Error, Refused                              the turn fails with the reason
//	the transcripts are not flushed in time an error with an end                        the end counts
//	the caller's context ends               its cause, and MayHaveDelivered
package turn
