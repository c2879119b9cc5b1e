// Package problem has the codes of the error events that overwinter writes to the log of a session.
package problem

// Codes of the error events that report failed operations of the session.
const (
	SyncFailed   = "sync_failed"   // the checkpoint was not saved; the session continues
	RevertFailed = "revert_failed" // the agent was not reverted; nothing has changed

	// Operations that fail for temporary reasons are retried until they succeed, a checkpoint and a
	// revert for fifteen minutes. The failure is reported at most once a minute, with the operation
	// and the time since which it has failed.
	ProvisioningDelayed = "provisioning_delayed"
	SavingDelayed       = "saving_delayed"
	RestoringDelayed    = "restoring_delayed"
	SyncDelayed         = "sync_delayed"
	RevertDelayed       = "revert_delayed"
	// SandboxLimit: the provider ended the sandbox because it exceeded a limit; the message begins
	// with "disk" or "memory". If it exceeded its disk, its files are lost and the session
	// continues from the last snapshot.
	SandboxLimit = "sandbox_limit"
)
