package runner

import (
	"encoding/json"
	"time"

	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// Message is one message of the protocol, in either direction.
type Message interface{ messageType() messageType }

// Hello opens a link.
type Hello struct {
	Version int    `json:"version"` // ProtocolVersion; Dial fills it in
	Token   string `json:"token"`
	Run     string `json:"run"`
	// From is the first frame to send: 0 for a new run, else the last committed frame plus one.
	From int64 `json:"from"`
	// Attempt counts the workers that have attached to the run. A lower number than the newest is
	// refused with CodeStale, so that an abandoned worker cannot displace its successor. 0 is never
	// refused.
	Attempt int64 `json:"attempt,omitempty"`
	// Known reports how much of each transcript file is stored.
	Known []transcript.Position `json:"known,omitempty"`
	// Files reports how much of the workspace's history is stored; nil for a link that receives no
	// changes.
	Files *workspacefile.Position `json:"files,omitempty"`
	// Calls is set if the worker answers calls of overwinter's tools. A worker of an earlier
	// release does not know their frames.
	Calls bool `json:"calls,omitempty"`
	// Window is how many frames from From on the agent may print before it waits for Taken; 0 for a
	// worker that does not send Taken, such as one of an earlier release.
	Window int64 `json:"window,omitempty"`
}

// Start requests the delivery of a run's prompt.
type Start struct {
	Launch Launch `json:"launch"`
	// Input is written to the agent's stdin: the prompt in the agent's own format.
	Input []byte `json:"input"`
	// Secrets are added to the agent's environment and stored nowhere else.
	Secrets map[string]string `json:"secrets,omitempty"`
}

// Launch describes how to start the agent's process. Its environment consists of PATH, HOME, LANG
// and TERM of the sandbox, then Env, then the secrets of Start.
type Launch struct {
	Argv []string          `json:"argv"`
	Env  map[string]string `json:"env,omitempty"`
	Dir  string            `json:"dir"`
	// Transcripts are absolute glob patterns of the agent's own files, in the syntax of
	// filepath.Match with ** for any number of directories.
	Transcripts []string `json:"transcripts,omitempty"`
	// Key identifies the properties that must be unchanged for a running process to take the next
	// prompt. If it differs, the process is restarted. Empty means that argv, env, dir and secrets
	// must be unchanged. Set a key if argv may change between prompts of the same agent, for
	// example by a flag to resume.
	Key string `json:"key,omitempty"`
}

// Input contains more bytes for the agent's stdin.
type Input struct{ Data []byte }

// Steer is Input that adds a prompt to the running turn. Each id is written once per run, even if
// several workers send it. It is dropped if the run is not the open one.
type Steer struct {
	ID   string `json:"id"`
	Data []byte `json:"data"`
}

// Interrupt aborts a turn: Stdin is written if it is not empty, else Signal, such as "INT", is sent
// to the agent's process group. Unless Settle arrives or the process exits within Grace, its whole
// process tree is killed. A Grace of 0 kills it at once. An interrupt that arrives before the start
// of its run waits until the agent has the prompt.
type Interrupt struct {
	Stdin  []byte        `json:"stdin,omitempty"`
	Signal string        `json:"signal,omitempty"`
	Grace  time.Duration `json:"grace"` // nanoseconds
}

// Settle reports that the turn of the link's run has ended.
type Settle struct{}

// Flush requests the current content of the transcript files. Flushed answers with its ID.
type Flush struct {
	ID int64 `json:"id"`
}

// CallAnswer answers the call in a frame. It is ignored if the call no longer waits.
type CallAnswer struct {
	Frame  int64           `json:"frame"`
	Answer json.RawMessage `json:"answer"`
}

// Taken reports that the worker has handled the frames before Next, and that the agent may print
// Window frames from there before it waits for the next Taken.
type Taken struct {
	Next   int64 `json:"next"`
	Window int64 `json:"window"`
}

// Detach ends the link and keeps its exec. Detached is the answer, and then another Hello begins
// another link over it, for any run.
type Detach struct{}

// Detached answers Detach. It is the last message of the link.
type Detached struct{}

// Delivery is the state of the delivery of a run's prompt; doc.go has the diagram.
type Delivery string

// The stages of a delivery.
const (
	NotStarted Delivery = "not_started"
	Delivering Delivery = "delivering"
	Delivered  Delivery = "delivered"
	Cut        Delivery = "cut"
)

// Welcome answers Hello.
type Welcome struct {
	Version  int      `json:"version"`
	Delivery Delivery `json:"delivery"`
	// LastFrame is the newest frame of the run; -1 before the first.
	LastFrame int64 `json:"lastFrame"`
	// Open is set if the run may get more frames. If false, LastFrame is its last frame.
	Open bool `json:"open"`
	// Agent is set if the agent's process is running.
	Agent bool `json:"agent"`
	// ListFiles is set if no changes of the workspace are reported until FilesKnown has arrived.
	ListFiles bool `json:"listFiles,omitempty"`
	// Calls are the frames of the calls that still wait for an answer.
	Calls []int64 `json:"calls,omitempty"`
	// Steers is set if the runner supports Steer. A runner of an earlier release does not.
	Steers bool `json:"steers,omitempty"`
	// Window is set if the runner respects the window of the hello, and supports Taken. A runner of
	// an earlier release does not.
	Window bool `json:"window,omitempty"`
	// Seals is set if a detached link accepts a Command with a Seal. A runner of an earlier release
	// does not.
	Seals bool `json:"seals,omitempty"`
}

// DeliveryChanged reports the delivery after a start.
type DeliveryChanged struct {
	Delivery Delivery `json:"delivery"`
}

// Stream is the origin of a frame.
type Stream string

// The streams of a journal.
const (
	Stdout Stream = "stdout" // one line of the agent
	Stderr Stream = "stderr" // one line of the agent
	Exit   Stream = "exit"   // the process has exited; Data is an ExitReport
	Call   Stream = "call"   // a call of one of overwinter's tools; Data is JSON that the runner does not interpret
)

// Frame is one record of a run's journal.
type Frame struct {
	No     int64 // 0, 1, …: contiguous per run
	Stream Stream
	At     time.Time // UTC
	Data   []byte
	// Truncated is set if the line was too long, or had no newline when the process exited.
	Truncated bool
}

// ExitReport is the data of an exit frame.
type ExitReport struct {
	Code   int    `json:"code"`   // -1 if a signal ended it, 127 if it could not be started
	Signal string `json:"signal"` // such as "killed"
	Stderr string `json:"stderr"` // its last 4 KiB
	// Interrupted is set if the runner killed the process because it did not act on an interrupt in
	// time.
	Interrupted bool `json:"interrupted"`
	// Stopped is the reason why the runner stopped the process, gracefully or by force; empty if it
	// exited by itself.
	Stopped StopReason `json:"stopped,omitempty"`
}

// StopReason is why the runner stopped the agent.
type StopReason string

// The reasons.
const (
	StoppedInterrupt StopReason = "interrupt" // it did not act on an interrupt in time
	StoppedSeal      StopReason = "seal"
	StoppedLaunch    StopReason = "launch"  // the next run has a different launch
	StoppedStdin     StopReason = "stdin"   // it no longer reads its stdin
	StoppedRunner    StopReason = "runner"  // the runner is shutting down
	StoppedJournal   StopReason = "journal" // the journal could not be written
)

// Segment is a piece of one of the agent's transcript files. Its fields are those of
// transcript.Segment that are known in the sandbox.
type Segment struct {
	Path    string // absolute, in the sandbox
	Version int64  // starts at 1 and rises when the file was rewritten rather than appended to
	Offset  int64
	Data    []byte
}

// Flushed answers Flush.
type Flushed struct {
	ID int64 `json:"id"`
}

// Alive keeps the link from being silent.
type Alive struct{}

// Displaced reports that a newer link has displaced this one.
type Displaced struct{}

// Direct is the first message to an attach that has passed on its stdout, if the runner writes the
// messages of the link to it directly. Direct and NoDiff never reach a worker.
type Direct struct{}

// NoDiff answers a Survey if attach could not take a diff.
type NoDiff struct{}

// Quiet is sent by serve only to the seal command, if requested: the agent and everything that it
// started have exited, and the workspace no longer changes.
type Quiet struct{}

// Command opens a connection that is not a link. Attach itself accepts a seal or a verify while no
// link is open, and answers like serve, except that the Result is a Seal or a Verification.
type Command struct {
	Version int           `json:"version"`
	Token   string        `json:"token"`
	Ping    bool          `json:"ping,omitempty"`
	Found   bool          `json:"found,omitempty"` // a ping that waits for the digest of the workspace
	Abort   *AbortRequest `json:"abort,omitempty"`
	Seal    *SealRequest  `json:"seal,omitempty"`
	// Verify is only for attach.
	Verify *VerifyRequest `json:"verify,omitempty"`
	// Quiet requests the message Quiet while the sandbox is sealed.
	Quiet bool `json:"quiet,omitempty"`
}

// Result answers a command, after its segments, if any.
type Result struct {
	Data json.RawMessage
}

// File begins a file of put; Data messages with its bytes follow.
type File struct {
	Path string `json:"path"` // absolute
	Size int64  `json:"size"`
}

// Data is a piece of a file of put.
type Data struct{ Bytes []byte }

// End ends the files of put.
type End struct {
	Files int `json:"files"`
}

func (*Direct) messageType() messageType          { return typeDirect }
func (*NoDiff) messageType() messageType          { return typeNoDiff }
func (*Quiet) messageType() messageType           { return typeQuiet }
func (*FilesKnown) messageType() messageType      { return typeKnown }
func (*FilesBegun) messageType() messageType      { return typeBegun }
func (*FileChanged) messageType() messageType     { return typeChanged }
func (*FilesBounded) messageType() messageType    { return typeBounded }
func (*Survey) messageType() messageType          { return typeSurvey }
func (*Diff) messageType() messageType            { return typeDiff }
func (*Hello) messageType() messageType           { return typeHello }
func (*Start) messageType() messageType           { return typeStart }
func (*Input) messageType() messageType           { return typeInput }
func (*Steer) messageType() messageType           { return typeSteer }
func (*Taken) messageType() messageType           { return typeTaken }
func (*Interrupt) messageType() messageType       { return typeInterrupt }
func (*Settle) messageType() messageType          { return typeSettle }
func (*Flush) messageType() messageType           { return typeFlush }
func (*CallAnswer) messageType() messageType      { return typeAnswer }
func (*Detach) messageType() messageType          { return typeDetach }
func (*Detached) messageType() messageType        { return typeDetached }
func (*Command) messageType() messageType         { return typeCommand }
func (*Welcome) messageType() messageType         { return typeWelcome }
func (*DeliveryChanged) messageType() messageType { return typeDelivery }
func (*Frame) messageType() messageType           { return typeFrame }
func (*Segment) messageType() messageType         { return typeSegment }
func (*Flushed) messageType() messageType         { return typeFlushed }
func (*Alive) messageType() messageType           { return typeAlive }
func (*Displaced) messageType() messageType       { return typeDisplaced }
func (*Error) messageType() messageType           { return typeError }
func (*Result) messageType() messageType          { return typeResult }
func (*File) messageType() messageType            { return typeFile }
func (*Data) messageType() messageType            { return typeData }
func (*End) messageType() messageType             { return typeEnd }
