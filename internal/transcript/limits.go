package transcript

// Limits bound the stored native transcripts of a session. Agents do not reach the default limits
// in practice: they bound what a program in a sandbox can make the database store.
type Limits struct {
	FileBytes    int64 // of one file
	SessionBytes int64 // of all files of a session
	Files        int64 // of a session
	// TurnReplaced bounds the bytes that one turn replaces by newer versions of their files. Each
	// version counts as at least MinReplaced bytes.
	TurnReplaced int64
}

// The default limits of transcripts.
const (
	MaxFileBytes    = 256 << 20
	MaxSessionBytes = 1 << 30
	MaxFiles        = 4096
	// MaxReplacedBytes is the default of Limits.TurnReplaced.
	MaxReplacedBytes = 4 << 30
	// MinReplaced is the minimum that a replaced version counts, since its rows and positions are
	// written regardless of its size.
	MinReplaced = 16 << 10
	// MaxGaps bounds the retries of a turn after its runner has left a gap in a transcript.
	MaxGaps = 5
	// MaxPath bounds the path of a file in bytes.
	MaxPath = 1024
	// MaxRevertBytes bounds the transcripts of a session for a revert, in which the agent's adapter
	// reads all of them into memory.
	MaxRevertBytes = 128 << 20
)

// Limit names one of Limits.
type Limit string

// The limits that the transcripts of a session may reach.
const (
	LimitFile    Limit = "file"    // one file is too large
	LimitSession Limit = "session" // all files together are too large
	LimitFiles   Limit = "files"   // there are too many files
	LimitPath    Limit = "path"    // a path is too long, or not UTF-8
	// LimitReplaced means that a turn has replaced too much. The next turn, or the hibernation,
	// stores the newest versions.
	LimitReplaced Limit = "replaced"
)

// CodeIncomplete is the code of the error event that reports a limit of transcripts.
const CodeIncomplete = "transcripts_incomplete"
