package transcript

// Limits bound what is stored of the native transcripts of a session. An agent does not reach the
// default limits in practice: they bound what a program in a sandbox can make the database store.
type Limits struct {
	FileBytes    int64 // of one file
	SessionBytes int64 // of all files of a session
	Files        int64 // of a session
	// TurnReplaced bounds the bytes that one turn replaces by newer versions of their files. Each version counts as
	// MinReplaced bytes at least.
	TurnReplaced int64
}

// The default limits of transcripts.
const (
	MaxFileBytes    = 256 << 20
	MaxSessionBytes = 1 << 30
	MaxFiles        = 4096
	// MaxReplacedBytes is the default of Limits.TurnReplaced.
	MaxReplacedBytes = 4 << 30
	// MinReplaced is what a replaced version counts as at least: its rows and positions are written whatever its size.
	MinReplaced = 16 << 10
	// MaxGaps is how often a turn is tried again after its runner has left a gap in a transcript.
	MaxGaps = 5
	// MaxPath bounds the path of a file in bytes.
	MaxPath = 1024
	// MaxRevertBytes bounds the transcripts of a session that is reverted: the adapter of its agent reads all of
	// them at once.
	MaxRevertBytes = 128 << 20
)

// Limit names one of Limits.
type Limit string

// The limits that the transcripts of a session may reach.
const (
	LimitFile    Limit = "file"    // one file is too large
	LimitSession Limit = "session" // all files together are
	LimitFiles   Limit = "files"   // there are too many
	LimitPath    Limit = "path"    // a path is too long, or no UTF-8
	// LimitReplaced: a turn has replaced too much. The next turn, or the hibernation, stores the newest versions.
	LimitReplaced Limit = "replaced"
)

// CodeIncomplete is the code of the error event that reports a limit of transcripts.
const CodeIncomplete = "transcripts_incomplete"
