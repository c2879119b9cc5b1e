package claude

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/agenttool"
	"github.com/overwinter-dev/overwinter/internal/lazyregexp"
	"github.com/overwinter-dev/overwinter/internal/permission"
)

// Name is the agent's name in the API.
const Name = "claude-sdk"

// The names of the secrets that the program reads from its environment.
const (
	SecretKey     = "ANTHROPIC_API_KEY"
	secretToken   = "ANTHROPIC_AUTH_TOKEN"
	secretOAuth   = "CLAUDE_CODE_OAUTH_TOKEN"
	SecretBaseURL = "ANTHROPIC_BASE_URL"
)

// interruptGrace is how long the agent may take to abort a turn, because it first stops its tools
// and writes its transcript.
const interruptGrace = 10 * time.Second

// messageSpace is the namespace for message uuids, which are derived from run ids.
var messageSpace = uuid.MustParse("d1a7f6c2-52a3-4f57-9b1c-7a3c4e0c8f5d")

var sessionID = lazyregexp.New(`^[a-z]+_([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})$`)

// Adapter is the adapter for Claude Code. The zero value is ready to use.
type Adapter struct{}

var (
	_ agent.Adapter  = Adapter{}
	_ agent.Answerer = Adapter{}
	_ agent.Steerer  = Adapter{}
)

// New returns the adapter.
func New() Adapter { return Adapter{} }

// Name is "claude-sdk".
func (Adapter) Name() string { return Name }

// Describe returns the public description of the agent.
func (Adapter) Describe() agent.Description {
	return agent.Description{
		Name:    Name,
		Title:   "Claude Code",
		Summary: "Anthropic's coding agent, version " + Version + ". Needs the secret " + SecretKey + ".",
		Version: Version,
		Models:  []string{agent.DefaultModel, "opus", "sonnet", "haiku"},
		Capabilities: []string{
			agent.CapabilityImages, agent.CapabilitySteer, "abort", "resume", "revert", "thinking", "subagents", "questions", "permissions", "rejection-message", "usage", "cost", "model", "profiles",
		},
		Secrets: append([]agent.Need{{
			Name: SecretKey, Required: true,
			Alternatives: []string{secretToken, secretOAuth, "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"},
		}}, agent.Optional(secretToken, secretOAuth, SecretBaseURL)...),
	}
}

// Launch starts Claude Code to serve prompts on stdin until it is closed. The key excludes whether
// the session is resumed, so that the process of the first prompt serves the second one too.
func (Adapter) Launch(in agent.LaunchInput) (agent.Launch, error) {
	id, err := sessionUUID(in.SessionID)
	if err != nil {
		return agent.Launch{}, fmt.Errorf("launch Claude Code: %w", err)
	}
	if in.Home == "" || in.Workspace == "" {
		return agent.Launch{}, errors.New("launch Claude Code: home and workspace are needed")
	}
	argv := []string{
		Binary, "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose",
		"--include-partial-messages", "--forward-subagent-text", "--replay-user-messages", "--session-mirror",
	}
	argv = append(argv, permissionFlags(in)...)
	flags, err := mcpFlags(in)
	if err != nil {
		return agent.Launch{}, fmt.Errorf("launch Claude Code: %w", err)
	}
	argv = append(argv, flags...)
	if model := in.ChosenModel(); model != "" && model != agent.DefaultModel {
		argv = append(argv, "--model", model)
	}
	key := strings.Join(argv, " ") + " " + id
	if in.Resume {
		argv = append([]string{"/bin/sh", "-c", resume, Name, id}, argv...)
	} else {
		argv = append(argv, "--session-id", id)
	}
	dir := path.Join(in.Home, ".claude/projects/*")
	return agent.Launch{
		Argv: argv,
		Key:  key,
		Env: map[string]string{
			"HOME":                                  in.Home,
			"IS_SANDBOX":                            "1", // required to run as root without permission prompts
			"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
			"DISABLE_AUTOUPDATER":                      "1",
		},
		Dir: in.Workspace,
		Transcripts: []string{
			path.Join(dir, id+".jsonl"),
			path.Join(dir, id, subagentDir, "*.jsonl"),
			path.Join(dir, id, subagentDir, "*"+metaSuffix),
		},
		Secrets: []string{SecretKey, secretToken, secretOAuth, SecretBaseURL},
	}, nil
}

// permissionFlags returns the flags that either skip all permission checks or make the agent ask.
// The same permissions answer its requests. Tools that they deny by name are disabled.
func permissionFlags(in agent.LaunchInput) []string {
	p := in.Permissions
	if p.Free() {
		return []string{"--dangerously-skip-permissions"}
	}
	flags := []string{"--permission-prompt-tool", "stdio", "--permission-mode", "default"}
	var denied []string
	for _, tool := range slices.Sorted(maps.Keys(p.Tools)) {
		if p.Tools[tool] == permission.Deny {
			denied = append(denied, tool)
		}
	}
	if len(denied) > 0 {
		flags = append(flags, "--disallowedTools", strings.Join(denied, ","))
	}
	if len(in.Tools) == 0 {
		return flags
	}
	var own []string
	for _, tool := range agenttool.All() {
		name := "mcp__" + agenttool.Server + "__" + tool.Name
		if _, ruled := p.Tools[name]; !ruled {
			own = append(own, name)
		}
	}
	return append(flags, "--allowedTools", strings.Join(own, ","))
}

// resume resumes a session, or starts it if its transcript does not exist: the first process may
// have died before it wrote anything, or the transcript may be lost. The program itself refuses to
// resume a session that it does not find, and to start one that has a file.
const resume = `id=$1; shift
if cat "$HOME"/.claude/projects/*/"$id".jsonl 2>/dev/null | grep -q '"type":"user"'; then exec "$@" --resume "$id"; fi
rm -f "$HOME"/.claude/projects/*/"$id".jsonl
exec "$@" --session-id "$id"`

// Prompt returns the user line of a run. Every delivery of a run has the same uuid, and the agent
// processes a uuid once.
func (Adapter) Prompt(in agent.PromptInput) ([]byte, error) {
	if in.RunID == "" {
		return nil, errors.New("prompt Claude Code: no run id")
	}
	return userLine(messageUUID(in.RunID, 0), in.Note, in.Content, in.Images...)
}

// Steer returns a user line. If the agent is working, it reads the line after the next tool result;
// otherwise it starts to work on it. The uuid is always the same for the same prompt and run.
func (Adapter) Steer(in agent.PromptInput) ([]byte, error) {
	if in.RunID == "" || in.PromptID == "" {
		return nil, errors.New("steer Claude Code: no run id, or no prompt id")
	}
	return userLine(steerUUID(in.RunID, in.PromptID), "", in.Content)
}

var _ agent.ImageCarrier = Adapter{}

// Bounds of the images in a user line. The start of a run contains the line in base64 and the
// agent's secrets, and is limited to 1 MiB.
const (
	maxCarried        = 256 << 10
	maxCarriedContent = 32 << 10 // of the prompt; a longer one leaves no room for images
)

// CarriesImages returns how many bytes of images fit into a prompt.
func (Adapter) CarriesImages(content string) int64 {
	if len(content) > maxCarriedContent {
		return 0
	}
	return maxCarried
}

// Interrupt returns the control request that aborts the turn.
func (Adapter) Interrupt(runID string) agent.Interrupt {
	return agent.Interrupt{Stdin: interruptLine(interruptID(runID)), Grace: interruptGrace}
}

// interruptLine returns the control request that aborts a turn. Its response contains the id.
func interruptLine(id string) []byte {
	b, err := json.Marshal(controlRequest{
		Type: "control_request", RequestID: id, Request: map[string]string{"subtype": "interrupt"},
	})
	if err != nil {
		panic(fmt.Sprintf("claude: encode interrupt: %v", err)) // strings can always be encoded
	}
	return append(b, '\n')
}

type controlRequest struct {
	Type      string            `json:"type"`
	RequestID string            `json:"request_id"`
	Request   map[string]string `json:"request"`
}

func interruptID(runID string) string { return "interrupt-" + runID }

// sessionUUID returns the uuid contained in a session's id.
func sessionUUID(id string) (string, error) {
	m := sessionID.FindStringSubmatch(id)
	if m == nil {
		return "", fmt.Errorf("there is no uuid in the session id %q", id)
	}
	return strings.Join(m[1:], "-"), nil
}

// messageUUID returns the uuid of the n-th message of a run: 0 is its prompt, the others ask the
// agent to continue.
func messageUUID(runID string, n int) string {
	name := runID
	if n > 0 {
		name += "/continue/" + strconv.Itoa(n)
	}
	return uuid.NewSHA1(messageSpace, []byte(name)).String()
}

// steerUUID returns the uuid of a prompt that is added to a run.
func steerUUID(runID, promptID string) string {
	return uuid.NewSHA1(messageSpace, []byte(runID+"/steer/"+promptID)).String()
}

// userLine returns a message in the agent's input format. A note is a separate part before the
// text, like the program's own reminders.
func userLine(id, note, content string, images ...agent.Image) ([]byte, error) {
	type imageSource struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      []byte `json:"data"`
	}
	type messagePart struct {
		Type   string       `json:"type"`
		Text   string       `json:"text,omitempty"`
		Source *imageSource `json:"source,omitempty"`
	}
	type userMessage struct {
		Role    string        `json:"role"`
		Content []messagePart `json:"content"`
	}
	var parts []messagePart
	if note != "" {
		parts = append(parts, messagePart{Type: "text", Text: stdio.Reminder(note)})
	}
	parts = append(parts, messagePart{Type: "text", Text: content})
	for _, i := range images {
		if len(i.Data) > 0 {
			parts = append(parts, messagePart{Type: "image", Source: &imageSource{Type: "base64", MediaType: i.MediaType, Data: i.Data}})
		}
	}
	b, err := json.Marshal(struct {
		Type      string      `json:"type"`
		UUID      string      `json:"uuid"`
		Message   userMessage `json:"message"`
		Parent    *string     `json:"parent_tool_use_id"`
		SessionID string      `json:"session_id"`
	}{
		Type: "user", UUID: id,
		Message: userMessage{Role: "user", Content: parts},
	})
	if err != nil {
		return nil, fmt.Errorf("encode a message: %w", err)
	}
	return append(b, '\n'), nil
}
