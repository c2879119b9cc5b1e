// Package problem has the codes of the error events that overwinter itself writes to the log of a session.
package problem

// Codes of the error events that report what the session could not do.
const (
	SyncFailed   = "sync_failed"   // the checkpoint was not saved; the session continues
	RevertFailed = "revert_failed" // the agent was not reverted; nothing has changed

	// What keeps failing for reasons that may pass is repeated until it succeeds, a checkpoint and a revert for
	// fifteen minutes. It is reported at most once a minute, with what is failing and since when.
	ProvisioningDelayed = "provisioning_delayed"
	SavingDelayed       = "saving_delayed"
	RestoringDelayed    = "restoring_delayed"
	SyncDelayed         = "sync_delayed"
	RevertDelayed       = "revert_delayed"
	// SandboxLimit: the provider ended the sandbox because it exceeded a limit ("disk" or "memory", with which the
	// message begins). Of one that exceeded its disk no files are kept: the session continues from the last snapshot.
	SandboxLimit = "sandbox_limit"
)
