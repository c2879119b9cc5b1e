// A program that was written against the OpenAPI document alone, with a client that oapi-codegen generated from it: it creates a session
// with a prompt, follows its events across connections, allows what the agent asks for, and prints how the prompt ended.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"example/api"
)

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, server, content string) error {
	c, err := api.NewClientWithResponses(server)
	if err != nil {
		return err
	}
	agent, key, ask := "demo", "one-session", api.OptionsPermissionsAsk
	created, err := c.CreateSessionWithResponse(ctx, &api.CreateSessionParams{IdempotencyKey: &key}, api.SessionCreate{
		Agent: agent, Options: &api.Options{Permissions: &ask}, Prompt: &api.FirstPrompt{Content: content},
	})
	if err != nil {
		return err
	}
	if created.JSON201 == nil {
		return fmt.Errorf("create: %s: %s", created.Status(), created.Body)
	}
	session := created.JSON201.Id
	fmt.Println("session", session)

	last := ""
	for {
		ended, err := follow(ctx, c, session, &last)
		if err != nil {
			return err
		}
		if ended != nil {
			fmt.Printf("turn %s of prompt %s\n", ended.Data.Outcome, ended.Data.PromptId)
			return nil
		}
	}
}

// follow reads one connection's events until the turn ends, or the connection does.
func follow(ctx context.Context, c *api.ClientWithResponses, session api.SessionId, last *string) (*api.EventTurnEnd, error) {
	resp, err := c.StreamEvents(ctx, session, &api.StreamEventsParams{}, func(_ context.Context, req *http.Request) error {
		req.Header.Set("Accept", "text/event-stream")
		if *last != "" {
			req.Header.Set("Last-Event-ID", *last)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 16<<20)
	id := ""
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			id = value
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || id == "" {
			continue
		}
		*last = id
		var e api.Event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return nil, err
		}
		ended, err := show(ctx, c, session, e)
		if err != nil || ended != nil {
			return ended, err
		}
	}
	return nil, nil
}

func show(ctx context.Context, c *api.ClientWithResponses, session api.SessionId, e api.Event) (*api.EventTurnEnd, error) {
	value, err := e.ValueByDiscriminator()
	if err != nil {
		return nil, nil // an event of a later version
	}
	switch event := value.(type) {
	case api.EventTextDelta:
		fmt.Print(event.Data.Delta)
	case api.EventQuestion:
		once := api.AnswerQuestionJSONBodyAnswerOnce
		answered, err := c.AnswerQuestionWithResponse(ctx, session, event.Data.Question.Id, api.AnswerQuestionJSONRequestBody{Answer: &once})
		if err != nil {
			return nil, err
		}
		fmt.Println("allowed", event.Data.Question.Title, answered.StatusCode())
	case api.EventTurnEnd:
		return &event, nil
	}
	return nil, nil
}
