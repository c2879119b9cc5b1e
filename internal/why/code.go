package why

// Code names a cause for programs. A code keeps its meaning; new ones may be added.
type Code string

// The state of a session, a prompt, a restore or a question.
const (
	SessionCreated      Code = "session_created"       // and nothing has happened to it yet
	SessionLazy         Code = "session_lazy"          // it has no sandbox before its first prompt or wake
	SessionStarting     Code = "session_starting"      // its first sandbox is being created
	SessionRunning      Code = "session_running"       // it has a sandbox
	SessionHibernating  Code = "session_hibernating"   // it is being saved
	SessionHibernated   Code = "session_hibernated"    // it sleeps
	SessionRestoring    Code = "session_restoring"     // its sandbox is being restored
	SessionInError      Code = "session_in_error"      // something was refused permanently
	SessionTerminated   Code = "session_terminated"    // it is over
	SessionErasing      Code = "session_erasing"       // its purge was requested
	PromptAccepted      Code = "prompt_accepted"       // a client has sent it
	PromptQueued        Code = "prompt_queued"         // it waits
	PromptProcessing    Code = "prompt_processing"     // the agent works on it
	PromptCompleted     Code = "prompt_completed"      //
	PromptFailed        Code = "prompt_failed"         // the agent ended its turn with an error
	PromptCancelled     Code = "prompt_cancelled"      //
	PromptUnknown       Code = "prompt_unknown"        // it was delivered, and its outcome was lost
	RestoredFull        Code = "restored_full"         //
	RestoredPartial     Code = "restored_partial"      // something is missing
	RestoredFresh       Code = "restored_fresh"        // nothing was restored
	RestoredUnverified  Code = "restored_unverified"   // not everything was compared
	NeverRestored       Code = "never_restored"        // there is no receipt
	QuestionOpen        Code = "question_open"         //
	QuestionAnswered    Code = "question_answered"     //
	QuestionExpired     Code = "question_expired"      // no answer came in time
	QuestionCancelled   Code = "question_cancelled"    //
	NothingToExplain    Code = "nothing_to_explain"    // the session has no prompt, question or transition
	CommandRequested    Code = "command_requested"     // a client has asked for it
	CancelledInTemporal Code = "cancelled_in_temporal" // an operator has cancelled the workflow
)

// The reason of a state, or of a delay.
const (
	Idle                Code = "idle"                 // nothing happened for the idle timeout
	Lifetime            Code = "lifetime"             // the provider ends the sandbox soon
	Moved               Code = "moved"                // to another sandbox
	Shutdown            Code = "shutdown"             // the installation was stopped, or its workers drained
	Aborted             Code = "aborted"              // a client interrupted the turn
	Dropped             Code = "dropped"              // the sandbox was discarded with its files, as requested
	Retried             Code = "retried"              // after an error that may have been temporary
	Steered             Code = "steered"              // a prompt of the mode steer interrupted the turn
	Withdrawn           Code = "withdrawn"            //
	Cleared             Code = "cleared"              // from the queue
	Reverted            Code = "reverted"             // the agent was reverted to its state before it
	Resolved            Code = "resolved"             // a person recorded the outcome
	Dismissed           Code = "dismissed"            //
	QueueHeld           Code = "queue_held"           //
	Collecting          Code = "collecting"           // others of the mode collect may join it
	JoinedTo            Code = "joined_to"            // the agent gets it with another
	BehindPrompts       Code = "behind_prompts"       // other prompts come first
	CommandPending      Code = "command_pending"      // a command comes first
	TurnRunning         Code = "turn_running"         // another prompt is processed
	TurnParked          Code = "turn_parked"          // the turn waits for an answer while the session sleeps
	PolicyDecided       Code = "policy_decided"       // a permission policy has answered
	TurnEnded           Code = "turn_ended"           // and the question with it
	SandboxLost         Code = "sandbox_lost"         //
	SandboxUnhealthy    Code = "sandbox_unhealthy"    // its runner does not answer
	SandboxLimit        Code = "sandbox_limit"        // it exceeded its disk or memory
	SandboxesLost       Code = "sandboxes_lost"       // several in a row
	GenerationUnusable  Code = "generation_unusable"  // a sandbox failed to start
	NothingToRestore    Code = "nothing_to_restore"   //
	SnapshotFailed      Code = "snapshot_failed"      //
	SnapshotGone        Code = "snapshot_gone"        // the provider no longer has it
	BundleOlder         Code = "bundle_older"         // the restore used a bundle older than the newest work
	BundleUnverified    Code = "bundle_unverified"    //
	HandedOver          Code = "handed_over"          // the session was forked with another agent, which has no memory yet
	Imported            Code = "imported"             // from an archive
	CheckpointFailed    Code = "checkpoint_failed"    //
	RevertFailed        Code = "revert_failed"        //
	ProvisioningDelayed Code = "provisioning_delayed" // creating the sandbox fails and is retried
	RestoringDelayed    Code = "restoring_delayed"    //
	SavingDelayed       Code = "saving_delayed"       //
	BreakerOpen         Code = "breaker_open"         // starts of other sandboxes fail too, and are tried one at a time
	AgentCrashed        Code = "agent_crashed"        //
	Quarantined         Code = "quarantined"          // the output of the run has crashed workers
	DeliveryUnknown     Code = "delivery_unknown"     // the runner has lost the run
	AttemptRepeated     Code = "attempt_repeated"     // another worker, or the same one again, has attached to the run
	WorkerLost          Code = "worker_lost"          // it was killed, or did not answer
	WorkerSilent        Code = "worker_silent"        // it sends no heartbeats, and will time out soon
	WorkerStopped       Code = "worker_stopped"       // and handed its work to another
	NoWorker            Code = "no_worker"            // no worker takes the work
	DatabaseUnavailable Code = "database_unavailable" //
	SessionLocked       Code = "session_locked"       // by another transaction in Postgres
	TemporalUnavailable Code = "temporal_unavailable" //
	ProviderUnavailable Code = "provider_unavailable" // of sandboxes
	RunnerUnreachable   Code = "runner_unreachable"   //
	ModelUnavailable    Code = "model_unavailable"    // the agent retries a request to its model
	StepTimedOut        Code = "step_timed_out"       //
	StepFailed          Code = "step_failed"          // and is retried
	StepSlow            Code = "step_slow"            // it takes, or took, longer than SlowAfter
	Refused             Code = "refused"              // the provider or the store will never accept it
	WorkflowTerminated  Code = "workflow_terminated"  // by an operator
	WorkflowReset       Code = "workflow_reset"       // by an operator
	WorkflowFailed      Code = "workflow_failed"      //
)

// Disagreements of Postgres and Temporal.
const (
	WorkflowNotOpen   Code = "workflow_not_open"  // the session has work, and no workflow is open
	WorkflowReplaced  Code = "workflow_replaced"  // another run of the workflow has opened the session
	StatusDiffers     Code = "status_differs"     //
	TransitionDiffers Code = "transition_differs" // one of them has more transitions
	RunDiffers        Code = "run_differs"        // they execute different runs
)

// Codes lists every code.
var Codes = []Code{
	SessionCreated, SessionLazy, SessionStarting, SessionRunning, SessionHibernating, SessionHibernated, SessionRestoring, SessionInError,
	SessionTerminated, SessionErasing, PromptAccepted, PromptQueued, PromptProcessing, PromptCompleted, PromptFailed, PromptCancelled,
	PromptUnknown, RestoredFull, RestoredPartial, RestoredFresh, RestoredUnverified, NeverRestored, QuestionOpen, QuestionAnswered,
	QuestionExpired, QuestionCancelled, NothingToExplain, CommandRequested, CancelledInTemporal,
	Idle, Lifetime, Moved, Shutdown, Aborted, Steered, Dropped, Retried, Withdrawn, Cleared, Reverted, Resolved, Dismissed, QueueHeld, Collecting, JoinedTo, BehindPrompts,
	CommandPending, TurnRunning, TurnParked, PolicyDecided, TurnEnded, SandboxLost, SandboxUnhealthy, SandboxLimit, SandboxesLost,
	GenerationUnusable, NothingToRestore, SnapshotFailed, SnapshotGone, BundleOlder, BundleUnverified, HandedOver, Imported, CheckpointFailed, RevertFailed,
	ProvisioningDelayed, RestoringDelayed, SavingDelayed, BreakerOpen, AgentCrashed, Quarantined, DeliveryUnknown, AttemptRepeated, WorkerLost,
	WorkerSilent, WorkerStopped, NoWorker, DatabaseUnavailable, SessionLocked, TemporalUnavailable, ProviderUnavailable, RunnerUnreachable, ModelUnavailable, StepTimedOut, StepFailed, StepSlow,
	Refused, WorkflowTerminated, WorkflowReset, WorkflowFailed,
	WorkflowNotOpen, WorkflowReplaced, StatusDiffers, TransitionDiffers, RunDiffers,
}
