package demo

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/demo/demoformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/question"
	"github.com/overwinter-dev/overwinter/internal/runner"
)

// Names shared with package demoformat.
const (
	Name    = demoformat.Name
	Command = demoformat.Command
)

// interruptGrace is how long the agent may take to abort a turn. It needs milliseconds; the rest is
// for a machine under load.
const interruptGrace = 5 * time.Second

// promptSpace is the namespace for prompt uuids, which are derived from run ids.
var promptSpace = uuid.MustParse("5c0c1c1b-7f3f-4d0e-9d3c-0d9ad1f2b6e4")

// Adapter is the adapter for the demo agent. The zero value is ready to use.
type Adapter struct{}

var (
	_ agent.Adapter  = Adapter{}
	_ agent.Answerer = Adapter{}
	_ agent.Steerer  = Adapter{}
)

// New returns the adapter.
func New() Adapter { return Adapter{} }

// Name is "demo".
func (Adapter) Name() string { return Name }

// Describe returns the public description of the agent.
func (Adapter) Describe() agent.Description {
	return agent.Description{
		Name:         Name,
		Title:        "Demo agent",
		Summary:      "Executes the lines of a prompt: runs commands, writes files, looks at images, asks, sleeps, echoes. Needs no model and no key.",
		Models:       []string{Name},
		Capabilities: []string{"abort", "resume", "revert", "thinking", "subagents", "questions", "permissions", "rejection-message", "title", agent.CapabilitySteer},
	}
}

// Launch starts the agent from the runner's own binary. The key excludes whether the session is
// resumed, so that the process of the first prompt serves the second one too.
func (Adapter) Launch(in agent.LaunchInput) (agent.Launch, error) {
	if !stdio.SessionID.MatchString(in.SessionID) {
		return agent.Launch{}, fmt.Errorf("launch demo agent: %q cannot name a session's files", in.SessionID)
	}
	if in.Home == "" || in.Workspace == "" {
		return agent.Launch{}, errors.New("launch demo agent: home and workspace are needed")
	}
	argv := []string{runner.DefaultBinary, Command, "--session", in.SessionID}
	if model := in.ChosenModel(); model != "" {
		argv = append(argv, "--model", model)
	}
	argv = append(argv, permissionFlags(in.Permissions)...)
	key := strings.Join(argv, " ")
	env := map[string]string{"HOME": in.Home}
	if len(in.Tools) > 0 {
		env[stdio.EnvTools] = stdio.EncodeTools(in.Tools)
		key += " " + env[stdio.EnvTools]
	}
	if in.Resume {
		argv = append(argv, "--resume")
	}
	dir := demoformat.TranscriptDir(in.Home, in.SessionID)
	return agent.Launch{
		Argv: argv,
		Key:  key,
		Env:  env,
		Dir:  in.Workspace,
		Transcripts: []string{
			path.Join(dir, demoformat.MainFile), path.Join(dir, demoformat.SubagentDir, "*.jsonl"), path.Join(dir, demoformat.AllowedFile),
		},
	}, nil
}

// permissionFlags returns the flags that name the tools that ask before they run. Denied tools ask
// too and are rejected; no earlier answer applies to them.
func permissionFlags(p permission.Rules) []string {
	var asking, denied []string
	for _, tool := range []string{demoformat.ToolShell, demoformat.ToolWrite} {
		switch p.Of(tool) {
		case permission.Allow:
		case permission.Deny:
			denied = append(denied, tool)
		default:
			asking = append(asking, tool)
		}
	}
	var flags []string
	if len(asking) > 0 {
		flags = append(flags, "--ask", strings.Join(asking, ","))
	}
	if len(denied) > 0 {
		flags = append(flags, "--ask-every-time", strings.Join(denied, ","))
	}
	return flags
}

// Prompt returns the user line of a run. Every delivery of a run has the same uuid.
func (Adapter) Prompt(in agent.PromptInput) ([]byte, error) {
	if in.RunID == "" {
		return nil, errors.New("prompt demo agent: no run id")
	}
	return demoformat.Line{
		Type: demoformat.LineUser, UUID: uuid.NewSHA1(promptSpace, []byte(in.RunID)).String(), RunID: in.RunID,
		PromptID: in.PromptID, Author: in.Author, At: in.At.UTC().Truncate(time.Millisecond), Content: in.Content, Note: in.Note,
	}.Encode()
}

// Steer returns a line that the agent reads after its current step, or declines if it has ended the
// turn.
func (Adapter) Steer(in agent.PromptInput) ([]byte, error) {
	if in.RunID == "" || in.PromptID == "" {
		return nil, errors.New("steer demo agent: no run id, or no prompt id")
	}
	return demoformat.Line{
		Type: demoformat.LineSteer, UUID: steerUUID(in.RunID, in.PromptID), RunID: in.RunID,
		PromptID: in.PromptID, Author: in.Author, At: in.At.UTC().Truncate(time.Millisecond), Content: in.Content,
	}.Encode()
}

func steerUUID(runID, promptID string) string {
	return uuid.NewSHA1(promptSpace, []byte(runID+"/steer/"+promptID)).String()
}

// Interrupt returns a line that names the run, so that a late interrupt affects no other turn.
func (Adapter) Interrupt(runID string) agent.Interrupt {
	b, err := demoformat.Line{Type: demoformat.LineInterrupt, RunID: runID}.Encode()
	if err != nil {
		panic(fmt.Sprintf("demo: encode interrupt: %v", err)) // two strings can always be encoded
	}
	return agent.Interrupt{Stdin: b, Grace: interruptGrace}
}

// Answer returns a line that names the question, so that the agent acts only on the first answer.
func (Adapter) Answer(q agent.Question, a agent.Answer) ([]byte, error) {
	if q.ID == "" {
		return nil, errors.New("answer demo agent: the question has no id")
	}
	if !slices.Contains(question.Decisions(), a.Decision) {
		return nil, fmt.Errorf("answer question %s: %q is not a decision", q.ID, a.Decision)
	}
	if faults := q.Check(a); len(faults) > 0 {
		return nil, fmt.Errorf("answer question %s: %s %s", q.ID, faults[0].Field, faults[0].Message)
	}
	return demoformat.Line{
		Type: demoformat.LineAnswer, UUID: q.ID, Decision: a.Decision, Answers: a.Answers, Content: a.Message,
	}.Encode()
}
