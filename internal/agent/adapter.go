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
	// Describe returns the public description of the agent.
	Describe() Description
	// Launch describes how to start the agent's process in a sandbox.
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

// Description is an agent's entry in GET /api/agents.
type Description struct {
	Name         string   `json:"name"`
	Title        string   `json:"title"`
	Summary      string   `json:"summary"`
	Version      string   `json:"version,omitempty"` // of the agent's program, if known
	Models       []string `json:"models"`
	Capabilities []string `json:"capabilities"`
	Secrets      []Need   `json:"secrets"` // that the agent can use, in order of preference
}

// LaunchInput is the input of a launch.
type LaunchInput struct {
	SessionID string
	Model     string
	Home      string // home directory of the agent in the sandbox
	Workspace string // its working directory
	Resume    bool   // the session has had turns: the transcript files contain its memory
	// Permissions determine the actions that the agent may take without asking. If they allow
	// everything, the agent is started so that it never asks. Otherwise it asks before every action
	// that its own rules do not classify as harmless, and these permissions, or people, answer.
	Permissions permission.Rules
	// Profile is the agent's configuration in addition to its defaults; nil for none. Its files are
	// already in the sandbox, see Profiled.
	Profile *profile.Spec
	// Tools is the command line of the server of overwinter's tools (package agenttool), which the
	// agent starts; nil if the agent is not offered these tools. Calls of them are allowed unless
	// Permissions name them.
	Tools []string
}

// MCPServers returns the servers that the agent starts or connects to: those of its profile, and
// the server of overwinter's tools.
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

// DefaultModel stands for the agent's own choice of model, for agents that list it among their
// models.
const DefaultModel = "default"

// ChosenModel returns the model of the session, or else that of its profile.
func (in LaunchInput) ChosenModel() string {
	if in.Model == "" && in.Profile != nil {
		return in.Profile.Model
	}
	return in.Model
}

// Launch describes the agent's process. One process serves many prompts. If it has ended, the
// runner starts it again with the next prompt.
type Launch struct {
	Argv []string
	Env  map[string]string // without secrets, which are passed on stdin
	Dir  string
	// Transcripts are glob patterns of the agent's own transcript files. The runner follows the
	// matching files and reports every byte.
	Transcripts []string
	// Key identifies the properties of the launch that must be unchanged for a running process to
	// take the next prompt; see runner.Launch. Empty means that everything must be unchanged.
	Key string
	// Secrets are the installation's secrets that the process gets as environment variables of the
	// same name, if they are stored.
	Secrets []string
}

// PromptInput is a prompt to deliver to the agent.
type PromptInput struct {
	RunID    string
	PromptID string
	Content  string
	Author   string
	At       time.Time
	// Images are the attached images of types that models accept. They are in the sandbox, and
	// Content names them too.
	Images []Image
	// Note is information for the agent that no person wrote, such as the files that a restore
	// lacked; empty for none. The model receives it with the prompt, separate from its content, and
	// the conversation does not show it.
	Note string
}

// Image is an image in the sandbox that belongs to a prompt.
type Image struct {
	Path      string // absolute
	MediaType string // image/png, image/jpeg, image/gif or image/webp
	Data      []byte // set only if the adapter is an ImageCarrier and the prompt has room
}

// ImageCarrier is an adapter whose prompts contain the bytes of images, since no bridge reads them
// in the sandbox.
type ImageCarrier interface {
	// CarriesImages returns how many bytes of images fit into a prompt with that content, which is
	// delivered as one message.
	CarriesImages(content string) int64
}

// CapabilityImages is the capability of agents that receive the images of a prompt, not only their
// paths.
const CapabilityImages = "images"

// Interrupt describes how to abort a turn: write Stdin if it is not empty, else send Signal. If the
// turn is still running after Grace, the agent's whole process tree is killed.
type Interrupt struct {
	Stdin  []byte
	Signal string // such as "INT"; only if Stdin is empty
	Grace  time.Duration
}

// RunContext is the run whose frames a translator reads.
type RunContext struct {
	RunID    string
	PromptID string
	Author   string
}

// Stream is the origin of a frame.
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
	Code   int    `json:"code"`   // -1 if a signal ended the process
	Signal string `json:"signal"` // such as "killed"
	Stderr string `json:"stderr"` // its last 4 KiB
	// Interrupted is set if the runner killed the process because it did not respond to an abort in
	// time.
	Interrupted bool `json:"interrupted"`
}

// Translator turns the frames of one run into events, in order. The result depends only on its
// state and the frame. It is not safe for concurrent use.
type Translator interface {
	// Translate translates the next frame. A frame that it does not understand gives no events or a
	// system block, never an error. An error means that state and frames do not belong together.
	Translate(Frame) (Translation, error)
	// State returns the state from which a later translator resumes after the last frame.
	State() ([]byte, error)
	// Cut closes every open block as aborted. No frame follows.
	Cut(at time.Time) []conversation.Event
}

// Translation is the result of translating one frame.
type Translation struct {
	Events []conversation.Event
	// Images are images in tool results, named by blocks of this frame or a later one. Each image
	// is reported once, with the frame that contains its bytes.
	Images []conversation.ImageData
	// End is set by the frame that ends the turn.
	End *TurnEnd
	// Input must be written to the agent's stdin now, because the turn waits for it. It may be
	// written twice, for example by two workers that read the same frame; the agent acts on it
	// once.
	Input []byte
	// Questions are new questions that wait for answers. Only an Answerer has any.
	Questions []Question
	// Resolved are the ids of questions that no longer wait, answered or not.
	Resolved []string
	// Steered reports which prompts passed to an Expecter the agent has accepted or declined, once
	// for each.
	Steered []SteerVerdict
}

// TurnEnd is the end of a turn as the agent reports it.
type TurnEnd struct {
	Outcome session.Outcome
	Reason  string
	Usage   usage.Usage
	Model   string
	// Unauthorized is set if the turn failed because the model API does not accept the agent's key.
	// Reason then has the agent's message.
	Unauthorized *Unauthorized `json:",omitempty"`
}

// ParseExit decodes the data of an exit frame.
func ParseExit(data []byte) (ExitReport, error) {
	var r ExitReport
	err := json.Unmarshal(data, &r)
	return r, err
}
