package runner

import "time"

// ProtocolVersion must be the same at both ends. The build that uses the runner puts it into the
// sandbox's image, and into a snapshot at each wake, so there is no negotiation: another version is
// refused with CodeVersion. A sandbox that is awake during a deploy keeps its runner, so an older
// runner must be able to refuse new messages, and the turn continues without them.
const ProtocolVersion = 1

// Bounds of the protocol.
const (
	// maxMessage bounds the payload of one message.
	maxMessage = 64 << 20
	// MaxLine bounds one line of the agent's stdout. A longer line is truncated and its frame
	// flagged.
	MaxLine = 32 << 20
	// MaxStderrLine bounds one line of the agent's stderr in the same way.
	MaxStderrLine = 16 << 10
	// MaxSegment bounds the data of one segment.
	MaxSegment = 1 << 20
	// MaxLinkMessage bounds the payload of a message that a worker reads from a link: a line of the
	// agent. Other kinds have lower bounds.
	MaxLinkMessage = MaxLine + maxHeader
	// maxHeader bounds the part of a message besides its content.
	maxHeader = 128 << 10
	// maxJSON bounds messages that consist only of JSON.
	maxJSON = 1 << 20
	// maxDiff bounds a Diff: a patch in base64, and the list of files.
	maxDiff = 16 << 20
	// maxResult bounds the Result of a seal or a verify: the paths of a manifest have 8 MiB at most.
	maxResult = 16 << 20
	// maxSealLine bounds one line of the stdout of seal.
	maxSealLine = 16 << 20
	// AliveInterval bounds how long a link may be silent. If a worker receives nothing for several
	// intervals, it has lost its exec.
	AliveInterval = 5 * time.Second
	// MaxDetached is how long an exec of attach waits for the next hello after its link was
	// detached.
	MaxDetached = 2 * time.Minute
	// PartingBudget bounds how long the runner writes the last message of a link, because its
	// reader may have died without closing the connection.
	PartingBudget = time.Second
)

// Exit codes of the runner's commands.
const (
	ExitOK        = 0
	ExitFailed    = 1 // the message on stderr has the details
	ExitUsage     = 2
	ExitNoRunner  = 3 // no runner serves on the socket
	ExitDisplaced = 4 // a newer link has displaced this one
	ExitRefused   = 5 // wrong token, version or run
)

// TokenVariable is the environment variable that passes the SHA-256 of the token to serve. The
// agent does not inherit it.
const TokenVariable = "OVERWINTER_RUNNER_TOKEN_SHA256"

// Code is why a link or a command was refused or ended.
type Code string

// The codes of an error message.
const (
	CodeToken      Code = "wrong_token"
	CodeVersion    Code = "wrong_version"
	CodeStale      Code = "stale_attempt"  // a newer attempt of the run has attached
	CodeInvalid    Code = "invalid"        // an unexpected message
	CodeJournal    Code = "journal_failed" // the journal cannot be written; the agent was killed
	CodeStopping   Code = "stopping"       // the runner is shutting down
	CodeIncomplete Code = "incomplete"     // a seal could not sync everything to disk
)

// Error is why the runner refused or ended a link or a command.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return "runner: " + e.Message }

// messageType is the first byte of a message.
type messageType byte

const (
	typeHello     messageType = 1
	typeStart     messageType = 2
	typeInput     messageType = 3
	typeInterrupt messageType = 4
	typeSettle    messageType = 5
	typeFlush     messageType = 6
	typeCommand   messageType = 7
	typeKnown     messageType = 8
	typeDetach    messageType = 9
	typeNoDiff    messageType = 10
	typeAnswer    messageType = 11
	typeSteer     messageType = 12
	typeTaken     messageType = 13

	typeWelcome   messageType = 65
	typeDelivery  messageType = 66
	typeFrame     messageType = 67
	typeSegment   messageType = 68
	typeFlushed   messageType = 69
	typeAlive     messageType = 70
	typeDisplaced messageType = 71
	typeError     messageType = 72
	typeResult    messageType = 73
	typeBegun     messageType = 74
	typeChanged   messageType = 75
	typeBounded   messageType = 76
	typeSurvey    messageType = 77
	typeDiff      messageType = 78
	typeDetached  messageType = 79
	typeDirect    messageType = 80
	typeQuiet     messageType = 81

	typeFile messageType = 96
	typeData messageType = 97
	typeEnd  messageType = 98
)
