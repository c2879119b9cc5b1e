package parrot

import (
	"fmt"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/conversation"
)

// Example shows the events and the end of a turn in which the agent crashes.
func Example() {
	t, err := New().NewTranslator(agent.RunContext{RunID: "run_1"}, nil)
	if err != nil {
		panic(err)
	}
	for i, f := range []agent.Frame{
		{Stream: agent.Stdout, Data: []byte(`{"run":"run_1","prompt":{"content":"Hello to you."}}`)},
		{Stream: agent.Stdout, Data: []byte(`{"run":"run_1","piece":"Hello "}`)},
		{Stream: agent.Stdout, Data: []byte(`{"run":"run_1","piece":"to"}`)},
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
	// block_complete run_1/prompt complete Hello to you.
	// block_start
	// text_delta
	// text_delta
	// block_complete run_1/answer aborted Hello to
	// metadata_update
	// error the agent ended with exit code 3 in the middle of a turn: out of seeds
	// failed agent_crashed
}
