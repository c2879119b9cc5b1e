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
	// From is the first frame wanted: 0 for a fresh run, else the last committed
	// frame plus one.
	From int64 `json:"from"`
	// Attempt counts the workers that have attached to the run. A lower one than
	// the runner has seen for the run is refused with CodeStale, so a worker that
	// was given up cannot displace its successor. 0 is never refused.
	Attempt int64 `json:"attempt,omitempty"`
	// Known says how much of each transcript file is stored.
	Known []transcript.Position `json:"known,omitempty"`
	// Files is how much of the workspace's history is stored; nil for a link that does not report
	// changes.
	Files *workspacefile.Position `json:"files,omitempty"`
	// Calls: the worker answers calls of overwinter's tools. A worker of an earlier release does not know their frames.
	Calls bool `json:"calls,omitempty"`
	// Window is how many frames from From on the agent may print before it waits for Taken; 0 for a worker that does not send
	// it, as those of earlier releases.
	Window int64 `json:"window,omitempty"`
}

// Start asks for the delivery of a run's prompt.
type Start struct {
	Launch Launch `json:"launch"`
	// Input is written to the agent's stdin: the prompt in the agent's own form.
	Input []byte `json:"input"`
	// Secrets are added to the agent's environment and kept nowhere else.
	Secrets map[string]string `json:"secrets,omitempty"`
}

// Launch says how the agent's process is started. Its environment is PATH, HOME,
// LANG and TERM of the sandbox, then Env, then the secrets of Start.
type Launch struct {
	Argv []string          `json:"argv"`
	Env  map[string]string `json:"env,omitempty"`
	Dir  string            `json:"dir"`
	// Transcripts are absolute glob patterns of the agent's own files, as
	// filepath.Match reads them; ** stands for any number of directories.
	Transcripts []string `json:"transcripts,omitempty"`
	// Key names what must be the same for a running process to take the next prompt: if it differs
	// the process is restarted. Empty means that argv, env, dir and secrets must be the same. Give
	// a key when argv changes between prompts without meaning another agent, such as a flag that
	// resumes.
	Key string `json:"key,omitempty"`
}

// Input is more bytes for the agent's stdin.
type Input struct{ Data []byte }

// Steer is Input that gives the running turn a prompt. What has an id is written once in a run, whichever workers send it. It is dropped
// where the run is not the open one.
type Steer struct {
	ID   string `json:"id"`
	Data []byte `json:"data"`
}

// Interrupt breaks a turn off: Stdin is written if it is not empty, else Signal,
// such as "INT", is sent to the agent's process group. Unless Settle comes or
// the process ends within Grace, it is killed with its whole process tree. No
// Grace (0) kills at once. One that comes before its run has been started waits
// until the agent has the prompt.
type Interrupt struct {
	Stdin  []byte        `json:"stdin,omitempty"`
	Signal string        `json:"signal,omitempty"`
	Grace  time.Duration `json:"grace"` // nanoseconds
}

// Settle says that the turn of the link's run has ended.
type Settle struct{}

// Flush asks for the present content of the transcript files; Flushed answers with its ID.
type Flush struct {
	ID int64 `json:"id"`
}

// CallAnswer answers the call in a frame. One that does not wait any more is left alone.
type CallAnswer struct {
	Frame  int64           `json:"frame"`
	Answer json.RawMessage `json:"answer"`
}

// Taken says that the worker has handled the frames before Next, and that the agent may print Window frames from there on
// before it waits for the next Taken.
type Taken struct {
	Next   int64 `json:"next"`
	Window int64 `json:"window"`
}

// Detach ends the link and keeps its exec: Detached answers, and then another
// Hello begins another link over it, of any run.
type Detach struct{}

// Detached answers Detach. Nothing of the link follows it.
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
	// Open: the run may get more frames. A run that is not open ends with LastFrame.
	Open bool `json:"open"`
	// Agent: its process runs.
	Agent bool `json:"agent"`
	// ListFiles: nothing is reported of the workspace until FilesKnown has come.
	ListFiles bool `json:"listFiles,omitempty"`
	// Calls are the frames of the calls that still wait for an answer.
	Calls []int64 `json:"calls,omitempty"`
	// Steers: the runner takes Steer. One of an earlier release does not.
	Steers bool `json:"steers,omitempty"`
	// Window: the runner keeps to the window of the hello, and takes Taken. One of an earlier release does not.
	Window bool `json:"window,omitempty"`
}

// DeliveryChanged reports the delivery after a start.
type DeliveryChanged struct {
	Delivery Delivery `json:"delivery"`
}

// Stream says where a frame comes from.
type Stream string

// The streams of a journal.
const (
	Stdout Stream = "stdout" // one line of the agent
	Stderr Stream = "stderr" // one line of the agent
	Exit   Stream = "exit"   // the process has ended; Data is an ExitReport
	Call   Stream = "call"   // the agent calls a tool of overwinter; Data is JSON that the runner does not read
)

// Frame is one record of a run's journal.
type Frame struct {
	No     int64 // 0, 1, …: contiguous per run
	Stream Stream
	At     time.Time // UTC
	Data   []byte
	// Truncated: the line was longer than its bound, or had no newline when the
	// process ended.
	Truncated bool
}

// ExitReport is the data of an exit frame.
type ExitReport struct {
	Code   int    `json:"code"`   // -1 when a signal ended it, 127 when it could not be started
	Signal string `json:"signal"` // such as "killed"
	Stderr string `json:"stderr"` // its last 4 KiB
	// Interrupted: the runner killed it because it did not act on an interrupt in time.
	Interrupted bool `json:"interrupted"`
	// Stopped says why the runner ended it, in order or by force; empty when it
	// ended by itself.
	Stopped StopReason `json:"stopped,omitempty"`
}

// StopReason is why the runner ended the agent.
type StopReason string

// The reasons.
const (
	StoppedInterrupt StopReason = "interrupt" // not acted on in time
	StoppedSeal      StopReason = "seal"
	StoppedLaunch    StopReason = "launch"  // the next run wants another launch
	StoppedStdin     StopReason = "stdin"   // it does not read prompts any more
	StoppedRunner    StopReason = "runner"  // the runner itself was asked to end
	StoppedJournal   StopReason = "journal" // the journal could not be written
)

// Segment is a piece of one of the agent's transcript files. Its fields are
// those of transcript.Segment that the sandbox knows.
type Segment struct {
	Path    string // absolute, in the sandbox
	Version int64  // 1 at first; rises when the file was rewritten rather than appended to
	Offset  int64
	Data    []byte
}

// Flushed answers Flush.
type Flushed struct {
	ID int64 `json:"id"`
}

// Alive says that the link works.
type Alive struct{}

// Displaced says that a newer link has taken over.
type Displaced struct{}

// Direct is the first message on the connection of an attach that has passed on its stdout, if the runner writes the
// messages of the link there itself. It and NoDiff never reach a worker.
type Direct struct{}

// NoDiff answers a Survey of which attach could take no diff.
type NoDiff struct{}

// Quiet goes from serve to the seal command alone, if that asks for it: the agent and everything that it started have
// ended, and the workspace does not change any more.
type Quiet struct{}

// Command opens a connection that is not a link.
type Command struct {
	Version int           `json:"version"`
	Token   string        `json:"token"`
	Ping    bool          `json:"ping,omitempty"`
	Abort   *AbortRequest `json:"abort,omitempty"`
	Seal    *SealRequest  `json:"seal,omitempty"`
	// Quiet asks for the message of that name while the sandbox is sealed.
	Quiet bool `json:"quiet,omitempty"`
}

// Result answers a command, after its segments if it has any.
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
