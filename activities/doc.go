// Package activities executes the decisions of workflows: it creates, saves, restores and ends
// sandboxes, executes turns, and keeps the records. Every activity may be interrupted anywhere and
// run again.
//
//	queue control   Control: short, or bounded by minutes; a stop never waits for a turn
//	queue turns     Turns: RunTurn and RunTurnWhenClaimed, for as long as an agent works
//
// RunTurn attaches an attempt to a run, executes the run with package turn, and records its
// outcome:
//
//	RunAttach ─▶ turn.Executor.Run ─▶ RunEnd ─▶ attend the session, or return
//	(token)      (until its end is committed)
//
// RunTurnWhenClaimed first waits until the restore of the session has claimed the run.
//
// Each group of activities (records, commands, runners, sandboxes, bundles, restores, reverts, reconciler, Turns) declares the
// part of the store that it needs.
//
// # Invariants
//
//   - The output of a run is in the log before the run ends. An end that was not
//     committed does not count.
//   - A prompt is delivered at most once: the runner's journal records the run.
//   - An attempt writes only while its token is the newest. A caller that settles a run takes the
//     token first. Attempts are ordered by the dispatch that the workflow was allotted and
//     Temporal's attempt number: an older one never takes a newer one's token.
//   - The row of a generation is written before its sandbox is created, and closed only when the
//     provider reports that the sandbox has ended.
//   - A snapshot is recorded before anything depends on it, and a bundle is verified
//     only when its snapshot resolves at the provider.
//   - A snapshot starts with this worker's runner, which replaces another one first.
//   - A sandbox is reused only while it is the newest generation's and has
//     no bundles except checkpoints.
//   - The answer to an agent's question is stored in a row before it is sent.
//   - An attempt that ends records its end in the row of its run. Without that record it counts as
//     lost: a run whose frames crash workers is quarantined (run.Losses).
//   - Inputs and results hold ids and small state: no text of a prompt, no secret.
//
// # What makes an activity safe to run twice
//
//	CreateSandbox, RestoreSandbox   the sandbox's name, which is the session and its generation
//	  with a workspace to set up    marks of its stages in the sandbox; a lock that another attempt waits for
//	  with work that is unsaved     the generation: once it has a bundle, nothing is unsaved
//	SaveBundle, RescueBundle,       the generation: it has one bundle
//	  DropSandbox
//	  of a checkpoint               the bundle's id: a generation may have many
//	RevertSession                   the agent's memory: a run that it does not know is already reverted
//	TerminateSandbox                the open rows of the session
//	BeginRun                        the run's id: the same claim is granted again
//	RestoreSandbox with a claim     the id of the claim: its run is found again
//	RunTurn                         the newest frame that is committed, then the run's outcome
//	  answers to questions          sent again by every new attempt; the agent acts on the first
//	  a profile                     its mark in the sandbox
//	  files of the workspace        lineage and number of the newest change that is committed
//	SettleRun, CancelPrompts        the run's outcome: the first stays
//	ReturnRun                       the run has ended, and its id is not used again
//	RecordTransition                the transition's number
//	Reconcile                       it compares again
//
// # What each failure means
//
//	type                  meaning                                 what the workflow does
//	SandboxLost           the provider says it has ended          rescue; a prompt in it is unknown
//	PromptNotDelivered    … and no attempt delivered the prompt   the prompt returns to its place
//	DeliveryUnknown       the runner lost the run, not the sandbox  the prompt is unknown
//	GenerationUnusable    this generation gets no sandbox         the next generation
//	Refused               a retry would be refused too            the prompt fails; else error
//	SessionMissing        the session has no row                  completes
//	Fenced                a newer attempt or generation has it    reads the row again
//	GaveWay               a turn needs the place of one that waits  another dispatch of the run
//	HandOver              the worker stops                        Temporal starts another attempt
//	anything else         it may be transient                     Temporal retries
//
// # When things fail
//
//	the worker is lost in a turn       another attaches after the last committed frame
//	a paused worker continues late     its token is old: nothing is written, it reports the run's end
//	the link to the runner ends        tried again; the provider then says whether the sandbox lives
//	the worker is lost after the end   the end is stored with the translator's state; RunEnd follows
//	a commit of files is lost          the runner reports them again to the next attempt
//	Postgres is unavailable            the agent continues; the journal keeps its output
//	the answer to a create is lost     the next attempt adopts the sandbox
//	the runner never answers           the sandbox is ended, the generation spent
//	the provider is unavailable        no sandbox is ended, no generation spent
//	a snapshot fails or is not found   no bundle; the sandbox stays
//	a restored agent file differs      the newer of both is used; the receipt is not full
//	work that no bundle covers         saved or rescued before its sandbox is ended or replaced
//	the snapshot is lost or damaged    confirmed; then an older one, or a fresh sandbox with the transcripts; partial
//	no image of ours is known          refused: it is the wrong account or environment
//
// # Timeouts
//
// Each class of activities has its timeouts, set in workflows/options.go: records (10s, retried
// without end), provision (30m, four attempts, repeated by the workflow), save (10m, the same), terminate
// (1m, without end), flush (15s, once), abort (10s, five attempts), turn (25h, a
// heartbeat every 16s at least, without end), reconcile (5m, once). Within them an
// attach takes at most 20s and a link may be silent for 20s.
//
// # Heartbeats
//
// A turn sends its heartbeats from a separate goroutine (pulse), three per timeout, the first at a
// random time. Frames never wait for a heartbeat, and a failed heartbeat is retried: a Temporal server that does not answer
// for ten seconds costs no attempt, and a turn continues without Temporal until another attempt
// takes the run's token. Heartbeats stop, and the attempt ends as HandOver, when the turn's loop
// makes no progress for Config.TurnStall. Waiting for the agent is progress; a stuck commit,
// delivery or lock is not.
package activities
