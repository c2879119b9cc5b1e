package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/client"
)

// A program creates a session, prints the agent's text, and stops when the turn has ended. No text
// is lost or printed twice if the connection breaks or the server restarts.
func Example() {
	address, stop := exampleServer() // http://127.0.0.1:8080, for example
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	c, err := client.New(address, "a key of twenty bytes")
	if err != nil {
		panic(err)
	}
	defer c.Close()
	s, err := c.SessionCreate(ctx, client.Create{Agent: "demo", Prompt: &client.FirstPrompt{Content: "Hello", ID: "hello"}}, "")
	if err != nil {
		panic(err)
	}
	for e, err := range c.Follow(ctx, s.ID, 0) {
		if err != nil {
			panic(err)
		}
		switch e.Type {
		case client.EventBlockComplete:
			var data client.BlockData
			if err := e.Decode(&data); err != nil {
				panic(err)
			}
			if data.Block.Type == client.AssistantText {
				fmt.Println(data.Block.Content)
			}
		case client.EventTurnEnd:
			var data client.TurnEndData
			if err := e.Decode(&data); err != nil {
				panic(err)
			}
			fmt.Printf("%s: %s\n", data.PromptID, data.Outcome)
			return
		}
	}
	// Output:
	// You said: Hello
	// hello: completed
}

// A prompt is stored once, no matter how often its request is sent. PromptWait returns when the
// prompt has ended.
func ExampleClient_PromptWait() {
	address, stop := exampleServer()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	c, err := client.New(address, "a key of twenty bytes")
	if err != nil {
		panic(err)
	}
	defer c.Close()
	s, err := c.SessionCreate(ctx, client.Create{Agent: "demo"}, "nightly-2026-03-04") // the same key, the same session
	if err != nil {
		panic(err)
	}
	submitted, err := c.PromptSubmit(ctx, s.ID, client.Submit{Content: "Look at this", Files: []client.File{{Name: "notes.txt", Data: []byte("…")}}})
	if err != nil {
		panic(err)
	}
	p, err := c.PromptWait(ctx, s.ID, submitted.Prompt.ID)
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Status)
	// Output: completed
}

// FollowBlocks keeps a view of the conversation up to date.
func ExampleClient_FollowBlocks() {
	address, stop := exampleServer()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	c, err := client.New(address, "a key of twenty bytes")
	if err != nil {
		panic(err)
	}
	defer c.Close()
	s, err := c.SessionCreate(ctx, client.Create{Agent: "demo", Prompt: &client.FirstPrompt{Content: "Hello"}}, "")
	if err != nil {
		panic(err)
	}
	for change, err := range c.FollowBlocks(ctx, s.ID) {
		if err != nil {
			panic(err)
		}
		if b := change.Block; b.Type == client.AssistantText && b.Status == client.BlockComplete {
			fmt.Println(b.Content)
			return
		}
	}
	// Output: You said: Hello
}

// A refusal of the server is an *Error. Its code is for programs, and its message for people.
func ExampleError() {
	address, stop := exampleServer()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	c, err := client.New(address, "a key of twenty bytes")
	if err != nil {
		panic(err)
	}
	defer c.Close()
	_, err = c.SessionCreate(ctx, client.Create{Agent: "unknown"}, "")
	if problem, ok := errors.AsType[*client.Error](err); ok && problem.Code == client.CodeInvalid {
		for _, f := range problem.Fields {
			fmt.Println(f.Field, f.Message)
		}
	}
	// Output: agent must be one of: demo
}
