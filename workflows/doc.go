// Package workflows decides what happens next in a session's life, and when. [Session] is the
// workflow of one session; [Reconcile] compares the provider with all sessions. Workflows only
// decide: activities do the work, and Postgres has the state.
//
// # States
//
// The transition table is session.Next. In each state, the main routine does the following;
// the arrows point to the next states:
//
//	initializing   create the sandbox; a lazy session rests until a prompt or a wake
//	               → running, error
//	running        continue a run · leave a lost sandbox · hibernate when asked · move when the
//	               sandbox's lifetime ends · serve the next prompt · hibernate when idle · wait:
//	               in this order, one step at a time
//	               → hibernating
//	hibernating    save a bundle, or rescue the remains of a lost sandbox; then terminate the sandbox
//	               → hibernated, error, terminated (nothing to wake from)
//	hibernated     rest until a prompt or a wake
//	               → restoring
//	restoring      restore the newest bundle, or continue in a sandbox that is still alive
//	               → running, error
//	error          wait for recover; prompts are accepted and wait
//	               → restoring
//	terminated     cancel prompts and commands that arrived late, and complete the workflow
//	any            stop: settle the turn, flush output, terminate the sandbox → terminated
//
// A stop takes precedence over everything else: it cancels creates, restores and snapshots in
// progress. Cancelling the workflow in Temporal has the effect of a stop.
//
// # Questions that outlive the sandbox
//
// If an agent waits only for people, its turn ends after a while and its run is parked: the run
// stays open but has no attempt. A session may hibernate with a parked run, but with no other open
// run. The workflow keeps the parked run (life.parked) apart from the runs that it continues or
// settles:
//
//	running       in the sandbox in which the agent waits: hibernate (question), even if an answer has arrived by then, because
//	              the agent must be stopped before it can continue. In a later sandbox: continue the run when its questions
//	              are answered or expire; until then wait, until the session is idle
//	hibernating   as without a parked run; a lost sandbox is rescued
//	hibernated    wake when the questions are answered (answer) or expire (question_expired), or on a wake; prompts wait,
//	              and the workflow stays open because it has the timer
//	restoring     as without a parked run
//	error         wait for recover; the questions stay open
//	any           an abort settles the run without a sandbox, once its agent is stopped; a stop settles it with the rest
//
// The questions that the run waits for are stored in Postgres. The workflow reads them with the
// session after each signal and transition (readParked). All code that handles open runs treats a
// parked run separately:
//
//   - RunAttach refuses it, so no attempt starts.
//   - TransitionRecord lets its session hibernate.
//   - Commands are signalled as if no turn were in progress.
//   - The relay does not signal for prompts that wait for it.
//   - The reconciler does not report it as a run without a workflow that drives it.
//
// ContinueRun makes it a normal run again, as the run's next part.
//
// # The life of a prompt
//
//	row in Postgres ── signal `prompt` ──▶ queue, by ordinal (hibernated: wake; else wait)
//	                                         │ running, and no turn in progress
//	                                         ▼
//	                                      BeginRun ── not granted ──▶ over: skipped
//	                                         │ granted                another run has it: read the
//	                                         ▼                        row, continue that one first
//	      abort, stop, hibernate force ─▶ RunTurn ◀─ the lifetime of the sandbox, or the sandbox, ends
//	                                         │
//	   completed, failed, cancelled ◀────────┤ by the activity, by SettleRun after an abort that
//	                                         │ was lost for 30 s, by CancelPrompts at a stop
//	   queued again ◀── PromptNotDelivered ──┤ ReturnRun: the agent never received it
//	   unknown ◀── lost after delivery ──────┘ hold: stays unknown; fail: failed; retry: queued again
//
// RestoreSandbox claims the prompt that wakes a session, instead of BeginRun. The activity of its
// turn begins together with the restore and waits for the claim (RunTurnWhenClaimed, aheadTurn).
//
// # Invariants
//
//   - Every status was reached by a step of the table (promise 6): transit asks session.Next,
//     records the step in Postgres, and only then moves. If the session has another state in
//     Postgres, the workflow continues from that state.
//   - The history of one run is bounded (promise 8): while there is room below 2,000 events for one
//     more step, or when the server suggests it, the workflow continues as new between two steps,
//     with signals drained and no activity in progress. Pending requests and the ids of recently
//     signalled prompts are carried over; everything else is read again.
//   - The hibernation of an idle session and a move are announced once each, when they are near, so consecutive turns cost
//     nothing. The announcement has the time of the session's row, which clients see; the hibernation follows at that time.
//   - At most one timer is pending. If the deadline moves later, the timer fires and is set again; an
//     earlier deadline replaces it. Fifty prompts cost one timer.
//   - Signal handlers only set fields. The main routine alone runs activities, and receives signals
//     whenever it waits. A repeated signal has no effect. A signal that arrives before the session
//     is loaded is handled as if it had arrived afterwards.
//   - No sandbox is terminated for hibernation before a bundle of it is committed (promise 4).
//   - A record is tried once within the workflow task, and then as an activity that is retried
//     without limit. It may be executed twice, the second time with another proposed id; the row
//     decides which one is valid.
//   - A prompt is delivered at most once, unless its policy is retry (promise 2): the prompt's row
//     determines its run, not the queue in memory.
//   - One workflow run per session: Postgres accepts records only from the run that opened the
//     session last, and activities change nothing at the provider for other runs. A workflow run
//     that was created by a reset is notified by its first record, or by the reconciler, and reads
//     the session again.
//   - One sandbox per session: each sandbox has the next generation, and a used generation is never
//     used again.
//
// TestScenarios shows each invariant, TestRandomSessionsKeepInvariants tries to break them, and
// TestReplaysRecordedHistories replays sessions of earlier releases.
//
// # When things fail
//
//	what fails                                what the workflow does                      the current prompt
//	Postgres unavailable                      records are retried until it responds       waits
//	workflow task lost after a record         the next task repeats the record            continued
//	create, restore, snapshot: transient      retried until it succeeds or is refused,    waits
//	                                          with pauses up to 30s and an event that
//	                                          reports it at most once a minute
//	create, restore, snapshot: refused        error with the reason                       waits
//	generation unusable or fenced             the next one; a pause after five in a row,  waits
//	                                          error after seven times five
//	terminate                                 retried without limit                       –
//	a run is open, but no turn is running     continued in running and hibernating, else    unknown; its policy
//	                                          settled
//	no attempt ever had the run               its prompt is requeued in its place         run later
//	worker lost in a turn                     the next worker attaches                    continued
//	attempt fenced, the run open              the row is read, the run dispatched again    continued
//	restore claims nothing, or fails          the turn that waits for it is cancelled     run later
//	question open, nothing else happens       hibernate (question), wake for the answer   processing
//	sandbox lost with the run parked          rescue, hibernate; wake for the answer      processing
//	sandbox lost before a parked run          hibernate (lost), wake for others           unknown; its policy
//	  has continued in it
//	agent crashes                             nothing: the turn has ended                 failed
//	runner lost the run                       the session continues                         unknown; its policy
//	sandbox lost before delivery              rescue, hibernate (lost), wake              run after the wake
//	sandbox lost in a turn                    rescue, hibernate (lost), wake for others   unknown; its policy
//	sandbox lost while idle (signal)          rescue, hibernate (lost)                    –
//	consecutive sandboxes lost, each          a pause of up to 30s before the next, from    waits
//	within 2m and before a turn ended         the second on, and an event; never error
//	sandbox lost while being saved            rescue: the bundle is unverified            waits
//	nothing to rescue                         terminated (nothing_to_restore)             cancelled
//	interrupted turn does not end             cancelled after 30 s                        cancelled
//	workflow terminated by hand               the next one reads Postgres: runs and       continued
//	                                          pending commands are continued
//	workflow reset by hand, to any task       repeated requests are refused; the run      continued
//	                                          reads Postgres and continues from there
//	record refused permanently                the row is read again, after a pause of     waits
//	                                          up to 30s if refusals repeat
//	no row of the session                     the workflow completes                      –
//
// # Limits
//
//   - A session that hibernates, or a lazy one that has never run, is unloaded a day after its last
//     activity: its workflow completes, and the next prompt, wake, stop or recover starts it again.
//     If workflows are pinned to builds of the worker, it is unloaded at once, and when the session
//     moves to another sandbox, its workflow continues as new on the current build. A session in
//     error keeps its workflow open.
//   - A session leaves its sandbox 20 minutes before the provider ends it, or at half of a shorter
//     remaining lifetime; a running turn is interrupted at half of this margin. Saving a bundle may
//     take 10 minutes.
//   - The server allows at most 10,000 signals per run, and a turn is not interrupted to continue
//     as new. At most one signal is unanswered, prompts and settings are not signalled during a
//     turn, and after 100 signals in one turn the workflow answers one every 30 seconds.
//   - Timeouts and retries are in options.go, by class.
package workflows
