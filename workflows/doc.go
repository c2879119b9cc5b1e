// Package workflows decides what happens next in a session's life, and when. [Session] is the
// workflow of one session, [Reconcile] the one that compares the provider with all of them. They
// decide only: everything that is done is done by an activity, and what is, is in Postgres.
//
// # States
//
// The table is session.Next. What the main routine does in each state, and where it goes:
//
//	initializing   create the sandbox; a lazy session rests until a prompt or a wake
//	               → running, error
//	running        carry a run on · leave a lost sandbox · hibernate when asked · move when the
//	               sandbox's life runs out · serve the next prompt · hibernate when idle · wait:
//	               in this order, one thing at a time
//	               → hibernating
//	hibernating    save a bundle, or rescue what is left; then terminate the sandbox
//	               → hibernated, error, terminated (nothing to wake from)
//	hibernated     rest until a prompt or a wake
//	               → restoring
//	restoring      restore the newest bundle, or take up the sandbox that never went away
//	               → running, error
//	error          wait for recover; prompts are accepted and wait
//	               → restoring
//	terminated     cancel what came late, complete
//	any            stop: settle the turn, flush output, terminate the sandbox → terminated
//
// A stop is acted on before anything else: creates, restores and snapshots under way are cancelled
// for it. Cancelling the workflow at the engine is the same as a stop.
//
// # Questions that outlive the sandbox
//
// A turn whose agent waits for people, and for nothing else, for long enough ends with its run parked: the run is open, has no
// attempt, and is the one thing that a session may hibernate with. The workflow holds it apart from the runs that it
// continues or settles (life.parked), in every state:
//
//	running       in the sandbox in which the agent waits: hibernate (question), whatever has been answered since: the agent is
//	              to be stopped before it is asked to continue. In a later one: continue the run when its questions are answered
//	              or their time is over; else wait, woken by a person, until the session is idle
//	hibernating   as ever; a sandbox that is lost is rescued
//	hibernated    wake when the questions are answered (answer) or their time is over (question_expired), or for a wake; prompts
//	              wait, and the workflow stays open, since it has the timer
//	restoring     as ever
//	error         wait for recover; the questions stay open
//	any           an abort settles the run without a sandbox, once its agent is stopped; a stop settles it with the rest
//
// What the run waits for is in Postgres, and is read with the session after each signal and transition (readParked). Every process
// that decides about open runs knows of it: RunAttach refuses a parked run, so that no attempt begins at it; TransitionRecord lets its
// session hibernate, and no other with an open run; commands are signalled as if no turn were under way; the relay does not signal for
// prompts that wait for it; the reconciler does not take it for a run that its workflow has forgotten. ContinueRun makes it a run like
// any other again, as its next part.
//
// # The way of a prompt
//
//	row in Postgres ── signal `prompt` ──▶ queue, by ordinal (hibernated: wake; else wait)
//	                                         │ running, and no turn under way
//	                                         ▼
//	                                      BeginRun ── not granted ──▶ over: passed by
//	                                         │ granted                another run has it: read the
//	                                         ▼                        row, carry that one on first
//	      abort, stop, hibernate force ─▶ RunTurn ◀─ the sandbox's life or the sandbox ends
//	                                         │
//	   completed, failed, cancelled ◀────────┤ by the activity, by SettleRun after an abort that
//	                                         │ was lost for 30 s, by CancelPrompts at a stop
//	   queued again ◀── PromptNotDelivered ──┤ ReturnRun: the agent never got it
//	   unknown ◀── lost after delivery ──────┘ hold: stays so; fail: failed; retry: queued again
//
// # Invariants
//
//   - Every status was reached by a step of the table (promise 6): transit asks session.Next,
//     records the step in Postgres, and only then moves. Where Postgres says that the session
//     stands elsewhere, it is taken up from there.
//   - The history of one run is bounded (promise 8): while there is room below 2,000 events for one
//     more step, or when the server suggests it, the workflow continues as new, between two steps,
//     with signals drained and no activity in progress. Pending requests and the ids of recently signaled prompts are carried
//     over; everything else is read again.
//   - Deadlines are announced once each, and only when they are near: an idle session's hibernation, and a move. Turns that follow
//     each other cost nothing for it. The announcement takes its time from the row, which clients see, and the hibernation
//     follows at that time.
//   - One timer is pending at most. A later time lets it fire and look again; only an earlier one
//     replaces it. Fifty prompts cost one timer.
//   - Signal handlers set fields; the main routine alone runs activities, and waits for nothing
//     without hearing signals. What arrives twice changes nothing the second time. What arrives
//     before the session is loaded counts as if it had come after.
//   - No sandbox is terminated for hibernation before a bundle of it is committed (promise 4).
//   - Records are tried once within the workflow task, and after that as activities that are
//     retried without limit. Each may be done twice, also with another id proposed: the row
//     decides.
//   - A prompt is delivered at most once, unless its policy is retry (promise 2): the row decides
//     who has it, never the queue in here.
//   - One workflow run per session: Postgres takes records of the run that opened the session last,
//     and activities change nothing at the provider for any other. A run that was reset learns so
//     with its first record, or from the reconciler, and reads the session again.
//   - One sandbox per session: the generation rises with each, and one that is spent is not asked
//     for again.
//
// TestScenarios shows them one by one, TestRandomLivesKeepThePromises tries to break them, and
// TestReplaysRecordedHistories guards sessions that are open while code changes.
//
// # When things fail
//
//	what fails                                what the workflow does                      the current prompt
//	Postgres away                             records are retried until it is back        waits
//	workflow task lost after a record         the next task does it again                 carried on
//	create, restore, snapshot: passing        repeated until it succeeds or is refused,   waits
//	                                          with pauses up to 30s and an event that
//	                                          says so at most once a minute
//	create, restore, snapshot: refused        error with the reason                       waits
//	generation spent or fenced                the next one; a pause after five in a row,  waits
//	                                          error after seven times five
//	terminate                                 retried without end                         –
//	a run that is open though no turn runs    carried on in running and hibernating, else  unknown; its policy
//	                                          settled
//	no attempt ever had the run               its prompt returns to its place             run later
//	worker lost in a turn                     the next worker attaches                    carried on
//	attempt fenced off, the run open          the row is read, the run dispatched again    carried on
//	question open, nothing else happens       hibernate (question), wake for the answer   processing
//	sandbox lost with the run parked          rescue, hibernate; wake for the answer      processing
//	sandbox lost before a parked run          hibernate (lost), wake for others           unknown; its policy
//	  has continued in it
//	agent crashes                             nothing: the turn has ended                 failed
//	runner lost the run                       the session continues                         unknown; its policy
//	sandbox lost before delivery              rescue, hibernate (lost), wake              run after the wake
//	sandbox lost in a turn                    rescue, hibernate (lost), wake for others   unknown; its policy
//	sandbox lost while idle (signal)          rescue, hibernate (lost)                    –
//	sandboxes lost one after the other, each  a pause of up to 30s before the next, from    waits
//	within 2m and before a turn ended         the second on, and an event; never error
//	sandbox lost while being saved            rescue: the bundle is unverified            waits
//	nothing to rescue                         terminated (nothing_to_restore)             cancelled
//	interrupted turn does not end             cancelled after 30 s                        cancelled
//	workflow terminated by hand               the next one reads Postgres: runs and       carried on
//	                                          pending commands are carried on
//	workflow reset by hand, to any task       what the new run repeats is refused; it     carried on
//	                                          reads Postgres and continues from there
//	record refused for good                   the row is read again, after a pause of     waits
//	                                          up to 30s where refusals repeat
//	no row of the session                     the workflow completes                      –
//
// # Limits
//
//   - A session that hibernates, or a lazy one that has never run, is unloaded a day after its last
//     activity: its workflow completes, and the next prompt, wake, stop or recover starts it again.
//     Where workflows are pinned to builds of the worker, it is unloaded at once, and a sandbox that
//     is left for another one is a reason to continue as new, on the current build.
//     A session in error keeps its workflow open.
//   - A sandbox is left 20 minutes before its provider ends it, or at half of what is left of a
//     shorter life; a turn is interrupted for that at half of this margin. Saving a bundle may
//     take 10 minutes.
//   - Signals are at most 10,000 per run at the server, and a turn is not interrupted to continue as new.
//     At most one signal is unanswered, prompts and settings are not signalled during a turn, and after
//     100 signals in one turn the workflow answers one every 30 seconds.
//   - Timeouts and retries are in options.go, by class.
package workflows
