package session

import "time"

// Limits of a session, all of them checked at the door and printed in the
// OpenAPI document.
const (
	DefaultIdleTimeout = 15 * time.Minute
	MinIdleTimeout     = time.Second
	MaxIdleTimeout     = 7 * 24 * time.Hour

	MaxQueued        = 1000      // prompts of one session that wait
	MaxPromptBytes   = 256 << 10 // content of one prompt
	MaxTitleRunes    = 200
	MaxMetadataBytes = 16 << 10
	MaxSetupBytes    = 64 << 10
	MaxModelRunes    = 200
)

// TranscriptLimits bound what is stored of the native transcripts of a session. An agent does not reach the
// default limits in practice: they bound what a program in a sandbox can make the database store.
type TranscriptLimits struct {
	FileBytes    int64 // of one file
	SessionBytes int64 // of all files of a session
	Files        int64 // of a session
	// TurnReplaced bounds the bytes that one turn replaces by newer versions of their files. Each version counts as
	// MinReplaced bytes at least.
	TurnReplaced int64
}

// The default limits of transcripts.
const (
	MaxTranscriptBytes  = 256 << 20
	MaxTranscriptsBytes = 1 << 30
	MaxTranscriptFiles  = 4096
	// MaxReplacedBytes is the default of TranscriptLimits.TurnReplaced.
	MaxReplacedBytes = 4 << 30
	// MinReplaced is what a replaced version counts as at least: its rows and positions are written whatever its size.
	MinReplaced = 16 << 10
	// MaxTranscriptGaps is how often a turn is tried again after its runner has left a gap in a transcript.
	MaxTranscriptGaps = 5
	// MaxTranscriptPath bounds the path of a file in bytes.
	MaxTranscriptPath = 1024
	// MaxRevertBytes bounds the transcripts of a session that is reverted: the adapter of its agent reads all of
	// them at once.
	MaxRevertBytes = 128 << 20
)

// TranscriptLimit names one of TranscriptLimits.
type TranscriptLimit string

// The limits that the transcripts of a session may reach.
const (
	TranscriptLimitFile    TranscriptLimit = "file"    // one file is too large
	TranscriptLimitSession TranscriptLimit = "session" // all files together are
	TranscriptLimitFiles   TranscriptLimit = "files"   // there are too many
	TranscriptLimitPath    TranscriptLimit = "path"    // a path is too long, or no UTF-8
	// TranscriptLimitReplaced: a turn has replaced too much. The next turn, or the hibernation, stores the newest versions.
	TranscriptLimitReplaced TranscriptLimit = "replaced"
)

// CodeTranscriptsIncomplete is the code of the error event that reports a limit of transcripts.
const CodeTranscriptsIncomplete = "transcripts_incomplete"
