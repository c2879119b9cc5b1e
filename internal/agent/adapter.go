package agent

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agenttool"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/usage"
)

// Adapter is one kind of agent. Its methods are pure and safe for concurrent use.
type Adapter interface {
	// Name is the agent's name in the API, such as "demo".
	Name() string
	// Describe returns what clients see of the agent.
	Describe() Description
	// Launch says how the agent's process is started in a sandbox.
	Launch(LaunchInput) (Launch, error)
	// Prompt returns the input that delivers a prompt to the agent's stdin.
	Prompt(PromptInput) ([]byte, error)
	// Interrupt returns how to abort a running turn without ending the agent.
	Interrupt(runID string) Interrupt
	// NewTranslator resumes from a state that an earlier translator of this adapter returned, or
	// starts a run if state is empty.
	NewTranslator(run RunContext, state []byte) (Translator, error)
	// Parse reads the agent's own transcript files, in any order. It never fails on a truncated
	// file; blocks left open are closed as aborted.
	Parse(files []transcript.File) (conversation.Conversation, error)
}

// Description is what GET /api/agents shows.
type Description struct {
	Name         string   `json:"name"`
	Title        string   `json:"title"`
	Summary      string   `json:"summary"`
	Version      string   `json:"version,omitempty"` // of the agent's program, where it is known
	Models       []string `json:"models"`
	Capabilities []string `json:"capabilities"`
	Secrets      []Need   `json:"secrets"` // that it can use, the preferred ones first
}

// LaunchInput is the input of a launch.
type LaunchInput struct {
	SessionID string
	Model     string
	Home      string // home directory of the agent in the sandbox
	Workspace string // its working directory
	Resume    bool   // the session has had turns: its memory is in the transcript files
	// Permissions say what the agent may do without asking. Where they allow everything it is
	// started so that it never asks; else so that it asks before everything that its own rules do not
	// call harmless, and what is asked is answered by these permissions, or by people.
	Permissions permission.Rules
	// Profile is the agent's configuration in addition to its defaults; nil for none. Its files are
	// in the sandbox already: see Profiled.
	Profile *profile.Spec
	// Tools is the command line of the server of overwinter's tools (package agenttool), which the agent starts; nil if it is not
	// offered them. Calls of them are allowed unless Permissions name them.
	Tools []string
}

// MCPServers are the servers that the agent starts or reaches: those of its profile, and that of overwinter's tools.
func (in LaunchInput) MCPServers() []profile.MCPServer {
	var list []profile.MCPServer
	if in.Profile != nil {
		list = slices.Clone(in.Profile.MCPServers)
	}
	if len(in.Tools) > 0 {
		list = append(list, profile.MCPServer{Name: agenttool.Server, Command: in.Tools[0], Args: in.Tools[1:]})
	}
	return list
}

// DefaultModel names an agent's own choice of model, for agents that list it among their models.
const DefaultModel = "default"

// ChosenModel returns the model of the session, or else that of its profile.
func (in LaunchInput) ChosenModel() string {
	if in.Model == "" && in.Profile != nil {
		return in.Profile.Model
	}
	return in.Model
}

// Launch starts the agent's process. One process serves many prompts; the runner
// starts it again with the next prompt when it has ended.
type Launch struct {
	Argv []string
	Env  map[string]string // never secrets: those go in by stdin
	Dir  string
	// Transcripts are glob patterns of the agent's own transcript files. The
	// runner follows what matches and hands over every byte.
	Transcripts []string
	// Key names what must be the same for a running process to take the next prompt; see
	// runner.Launch. Empty means that everything must be.
	Key string
	// Secrets are the environment variables that the process gets from the
	// installation's secrets of these names, as far as they are stored.
	Secrets []string
}

// PromptInput is a prompt on its way to the agent.
type PromptInput struct {
	RunID    string
	PromptID string
	Content  string
	Author   string
	At       time.Time
	// Images are those of its attachments that models take. They are in the sandbox, and Content names them too.
	Images []Image
	// Note is what the agent must know and no person wrote, such as what a restore lacked; empty for nothing. The model gets
	// it with the prompt, apart from its content, and it is not shown in the conversation.
	Note string
}

// Image is an image in the sandbox that a prompt comes with.
type Image struct {
	Path      string // absolute
	MediaType string // image/png, image/jpeg, image/gif or image/webp
	Data      []byte // of adapters that are an ImageCarrier, where there was room for it
}

// ImageCarrier is an adapter whose prompts have the bytes of images, since no bridge reads them in the sandbox.
type ImageCarrier interface {
	// CarriesImages returns how many bytes of images a prompt with that content has room for: it is delivered in one message.
	CarriesImages(content string) int64
}

// CapabilityImages is the capability of agents that are given the images of a prompt, and not only their paths.
const CapabilityImages = "images"

// Interrupt breaks a turn off: Stdin is written if it is not empty, else Signal
// is sent. What still runs after Grace is killed with its whole process tree.
type Interrupt struct {
	Stdin  []byte
	Signal string // such as "INT"; only where Stdin is empty
	Grace  time.Duration
}

// RunContext is the run whose frames a translator reads.
type RunContext struct {
	RunID    string
	PromptID string
	Author   string
}

// Stream says where a frame comes from.
type Stream string

// The streams of a run's journal.
const (
	Stdout Stream = "stdout" // one line of the agent
	Stderr Stream = "stderr" // one line of the agent
	Exit   Stream = "exit"   // the process has ended; Data is an ExitReport
)

// Frame is one raw record of a run's journal.
type Frame struct {
	No     int64 // 0, 1, …: contiguous per run
	Stream Stream
	At     time.Time
	Data   []byte
}

// ExitReport is the data of an exit frame.
type ExitReport struct {
	Code   int    `json:"code"`   // -1 when a signal ended it
	Signal string `json:"signal"` // such as "killed"
	Stderr string `json:"stderr"` // its last 4 KiB
	// Interrupted: the runner ended it because it did not act on an abort in time.
	Interrupted bool `json:"interrupted"`
}

// Translator turns the frames of one run into events, in order. The result depends only on its
// state and the frame. It is not safe for concurrent use.
type Translator interface {
	// Translate reads the next frame. A frame that it does not understand gives
	// no events or a system block, never an error; an error means that state
	// and frames do not belong together.
	Translate(Frame) (Translation, error)
	// State returns the state from which a later translator resumes after the last frame.
	State() ([]byte, error)
	// Cut closes every block that is still open, as aborted: no frame will
	// come any more.
	Cut(at time.Time) []conversation.Event
}

// Translation is the result of translating one frame.
type Translation struct {
	Events []conversation.Event
	// Images are those in results of tools, which blocks of this frame or of a later one name. Each comes once, with the frame
	// that has its bytes.
	Images []conversation.ImageData
	// End is set by the frame that ends the turn.
	End *TurnEnd
	// Input is to be written to the agent's stdin now: the turn waits for it. It may be written
	// twice, for example by two workers that read the same frame; the agent acts on it once.
	Input []byte
	// Questions are new and wait for answers; only an Answerer has any.
	Questions []Question
	// Resolved are ids of questions that no longer wait, answered or not.
	Resolved []string
	// Steered reports which of the prompts that an Expecter was notified of the agent has accepted
	// or declined, once for each.
	Steered []SteerVerdict
}

// TurnEnd is how the agent says a turn ended.
type TurnEnd struct {
	Outcome session.Outcome
	Reason  string
	Usage   usage.Usage
	Model   string
	// Unauthorized is set for a turn that failed because the server of the model does not accept the agent's key. Reason then
	// has the agent's words for it.
	Unauthorized *Unauthorized `json:",omitempty"`
}

// ParseExit reads the data of an exit frame.
func ParseExit(data []byte) (ExitReport, error) {
	var r ExitReport
	err := json.Unmarshal(data, &r)
	return r, err
}
