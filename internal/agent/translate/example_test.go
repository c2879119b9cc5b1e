package translate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/capture"
	"github.com/overwinter-dev/overwinter/internal/agent/ledger"
	"github.com/overwinter-dev/overwinter/internal/agent/translate"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// parrot is a whole adapter, of an agent that reads a prompt as a line of JSON and writes its answer
// piece by piece. It writes the same lines to its transcript file.
type parrot struct{}

// parrotLine is a line of the agent. Lines of one text have the same id.
type parrotLine struct {
	ID   string `json:"id"`
	Text string `json:"text"`
	Last bool   `json:"last"` // the text is complete
	Done bool   `json:"done"` // the turn has ended
}

func (parrot) Name() string { return "parrot" }

func (parrot) Describe() agent.Description {
	return agent.Description{Name: "parrot", Title: "Parrot", Summary: "Repeats the prompt.", Models: []string{"grey"}}
}

func (parrot) Launch(in agent.LaunchInput) (agent.Launch, error) {
	file := in.Home + "/.parrot/" + in.SessionID + ".jsonl"
	return agent.Launch{
		Argv: []string{"/overwinter/agents/parrot", "--transcript", file}, Dir: in.Workspace,
		Transcripts: []string{file}, Key: in.SessionID,
	}, nil
}

func (parrot) Prompt(in agent.PromptInput) ([]byte, error) {
	line, err := json.Marshal(map[string]string{"id": in.RunID, "prompt": in.Content})
	return append(line, '\n'), err
}

func (parrot) Interrupt(string) agent.Interrupt {
	return agent.Interrupt{Signal: "INT", Grace: 5 * time.Second}
}

// parrotTranslator embeds the frame; its state embeds the open blocks. A real adapter bounds the text that it
// keeps of them, since a state has at most 64 KiB.
type parrotTranslator struct {
	translate.Turn
	state parrotState
}

type parrotState struct {
	ledger.Ledger[*ledger.Entry]
	Ended bool `json:"ended,omitempty"`
}

func (parrot) NewTranslator(run agent.RunContext, from []byte) (agent.Translator, error) {
	t := &parrotTranslator{Turn: translate.Turn{Run: run}}
	if err := t.Restore("parrot", from, 1, &t.state); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *parrotTranslator) State() ([]byte, error) { return agent.EncodeState(1, &t.state) }

func (t *parrotTranslator) Translate(f agent.Frame) (agent.Translation, error) {
	return t.Read(f, t.state.Ended, t.line, t.exit), nil
}

func (t *parrotTranslator) Cut(at time.Time) []conversation.Event { return t.state.Cut(at.UTC()) }

func (t *parrotTranslator) line(f agent.Frame) {
	var l parrotLine
	err := json.Unmarshal(f.Data, &l)
	switch {
	case err != nil || l.ID == "" && !l.Done:
		t.Unparsed(f, strings.ToValidUTF8(string(f.Data[:min(len(f.Data), 1<<10)]), "\uFFFD"))
	case l.Done:
		t.end(agent.TurnEnd{Outcome: session.OutcomeCompleted}, f.At)
	default:
		t.says(l, f.At)
	}
}

func (t *parrotTranslator) says(l parrotLine, at time.Time) {
	o := t.state.Find(l.ID)
	if o == nil {
		o = &ledger.Entry{Block: conversation.Block{
			ID: l.ID, Type: conversation.AssistantText, Status: conversation.Streaming, CreatedAt: at,
		}}
		t.Emit(t.state.Start(o, at)...)
	}
	o.Text = conversation.AppendText(o.Text, l.Text)
	t.Emit(o.Delta(l.Text, at))
	if l.Last {
		t.Emit(t.state.Close(o, conversation.Complete, at))
	}
}

func (t *parrotTranslator) exit(f agent.Frame) {
	end, events := agent.ReadExit(f, agent.MaxStderr)
	t.end(end, f.At)
	t.Emit(events...)
}

func (t *parrotTranslator) end(end agent.TurnEnd, at time.Time) {
	t.Emit(t.Cut(at)...)
	t.Out.End = &end
	t.state = parrotState{Ended: true}
}

// Parse reads the same lines from the transcript: a turn that has ended is followed by the next.
func (p parrot) Parse(files []transcript.File) (conversation.Conversation, error) {
	var folder conversation.Folder
	add := func(events []conversation.Event) {
		for _, e := range events {
			folder.Add(e)
		}
	}
	for _, file := range files {
		t := &parrotTranslator{}
		for line := range bytes.Lines(file.Data) {
			add(t.Read(agent.Frame{Stream: agent.Stdout, Data: line}, false, t.line, t.exit).Events)
		}
		add(t.Cut(time.Time{}))
	}
	return folder.Conversation(), nil
}

// Example shows what an adapter makes of a turn in which the agent crashes.
func Example() {
	t, err := parrot{}.NewTranslator(agent.RunContext{RunID: "run_1"}, nil)
	if err != nil {
		panic(err)
	}
	for i, f := range []agent.Frame{
		{Stream: agent.Stdout, Data: []byte(`{"id":"a","text":"Hello "}`)},
		{Stream: agent.Stdout, Data: []byte(`{"id":"a","text":"to you.","last":true}`)},
		{Stream: agent.Stdout, Data: []byte(`{"id":"b","text":"And to"}`)},
		{Stream: agent.Exit, Data: []byte(`{"code":3,"stderr":"out of seeds"}`)},
	} {
		f.No = int64(i)
		out, err := t.Translate(f)
		if err != nil {
			panic(err)
		}
		for _, e := range out.Events {
			switch d := e.Data.(type) {
			case conversation.BlockComplete:
				fmt.Println(e.Type, d.Block.ID, d.Block.Status, d.Block.Content)
			case conversation.Problem:
				fmt.Println(e.Type, d.Message)
			default:
				fmt.Println(e.Type)
			}
		}
		if out.End != nil {
			fmt.Println(out.End.Outcome, out.End.Reason)
		}
	}
	// Output:
	// block_start
	// text_delta
	// text_delta
	// block_complete a complete Hello to you.
	// block_start
	// text_delta
	// block_complete b aborted And to
	// error the agent ended with exit code 3 in the middle of a turn: out of seeds
	// failed agent_crashed
}

// TestTheExampleKeepsThePromisesOfATranslator checks it as the fuzz tests of real adapters do.
func TestTheExampleKeepsThePromisesOfATranslator(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		"", "nonsense", `{"id":7}`, `{"done":true}` + "\n" + `{"id":"a","text":"late"}`,
		`{"id":"a","text":"x"}` + "\n" + `{"id":"b","text":"\ud800"}` + "\n" + `{"id":"a","last":true}` + "\n" + `{"done":true}`,
	} {
		capture.Translate(t, parrot{}, agent.RunContext{RunID: "run_1"}, data, func([]byte) {})
		capture.ParseAny(t, parrot{}, transcript.File{Path: "/home/.parrot/a.jsonl", Data: []byte(data)})
	}
}
