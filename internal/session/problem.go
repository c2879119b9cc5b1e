package session

// Codes of the error events that report what the session could not do.
const (
	ProblemSyncFailed   = "sync_failed"   // the checkpoint was not saved; the session continues
	ProblemRevertFailed = "revert_failed" // the agent was not reverted; nothing has changed

	// What keeps failing for reasons that may pass is repeated until it succeeds, a checkpoint and a revert for
	// fifteen minutes. It is reported at most once a minute, with what is failing and since when.
	ProblemProvisioningDelayed = "provisioning_delayed"
	ProblemSavingDelayed       = "saving_delayed"
	ProblemRestoringDelayed    = "restoring_delayed"
	ProblemSyncDelayed         = "sync_delayed"
	ProblemRevertDelayed       = "revert_delayed"
	// ProblemSandboxLimit: the provider ended the sandbox because it exceeded a limit ("disk" or "memory", with which the
	// message begins). Of one that exceeded its disk no files are kept: the session continues from the last snapshot.
	ProblemSandboxLimit = "sandbox_limit"
)
