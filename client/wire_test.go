package client_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/lifecycle"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/why"
)

// TestTypesHaveFieldsOfServer compares the field names of the types with those that the server
// encodes. A field that is missing here is lost for programs and for the output of the command
// line.
func TestTypesHaveFieldsOfServer(t *testing.T) {
	t.Parallel()
	for _, pair := range []struct{ server, here any }{
		{resource.SessionJSON{}, client.Session{}},
		{resource.PromptJSON{}, client.Prompt{}},
		{resource.QuestionJSON{}, client.Question{}},
		{resource.CommandJSON{}, client.Command{}},
		{resource.BundleJSON{}, client.Bundle{}},
		{resource.RunJSON{}, client.Run{}},
		{why.Explanation{}, client.Explanation{}},
		{resource.HistoryEventJSON{}, client.HistoryEvent{}},
		{resource.FileJSON{}, client.WorkspaceFile{}},
		{resource.DiffJSON{}, client.Diff{}},
		{resource.GitJSON{}, client.Git{}},
		{resource.ScreenshotJSON{}, client.Screenshot{}},
		{event.JSON{}, client.Event{}},
		{conversation.Conversation{}, client.Conversation{}},
		{event.StatusData{}, client.StatusData{}},
		{event.QueueData{}, client.QueueData{}},
		{event.TurnStartData{}, client.TurnStartData{}},
		{event.TurnEndData{}, client.TurnEndData{}},
		{event.FileData{}, client.FileData{}},
		{event.SetupData{}, client.SetupData{}},
		{event.NetworkData{}, client.NetworkData{}},
		{event.DeadlineData{}, client.DeadlineData{}},
		{event.CommandData{}, client.CommandData{}},
		{event.QuestionData{}, client.QuestionData{}},
		{event.QuestionResolvedData{}, client.QuestionResolvedData{}},
		{conversation.TextDelta{}, client.TextDeltaData{}},
		{conversation.BlockComplete{}, client.BlockData{}},
		{conversation.BlockRemoved{}, client.BlockRemovedData{}},
		{conversation.MetadataUpdate{}, client.MetadataData{}},
		{conversation.Title{}, client.TitleData{}},
		{conversation.Problem{}, client.ErrorData{}},
		{conversation.Screenshot{}, client.ScreenshotData{}},
		{conversation.GitState{}, client.GitStateData{}},
		{conversation.Review{}, client.ReviewData{}},
		{conversation.ReviewResult{}, client.ReviewResultData{}},
		{conversation.PullRequest{}, client.PullRequestData{}},
	} {
		require.Equal(t, fields(reflect.TypeOf(pair.server), ""), fields(reflect.TypeOf(pair.here), ""), "%T", pair.here)
	}
}

// fields returns the JSON names of a type with their options and kinds, in order.
func fields(t reflect.Type, at string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 {
		t = t.Elem()
	}
	switch t.Name() {
	case "Time", "Duration", "Words", "RawMessage":
		return []string{at + " " + t.Name()}
	}
	if t.Kind() != reflect.Struct {
		return []string{at + " " + t.Kind().String()}
	}
	var found []string
	for f := range t.Fields() {
		name := f.Tag.Get("json")
		if f.Anonymous {
			found = append(found, fields(f.Type, at)...)
			continue
		}
		if name == "-" || name == "" {
			continue
		}
		for _, inner := range fields(f.Type, "") {
			found = append(found, at+"."+name+inner)
		}
	}
	slices.Sort(found)
	return found
}

func TestEveryCodeAndTypeHasItsConstant(t *testing.T) {
	t.Parallel()
	here := constants(t, "error.go", "Code")
	require.Equal(t, constants(t, "../internal/failure/failure.go", "Code"), here)
	require.Greater(t, len(here), 30)

	var types []string
	for _, name := range lifecycle.Types {
		types = append(types, string(name))
	}
	slices.Sort(types)
	require.Equal(t, types, constants(t, "lifecycle.go", ""))

	types = constants(t, "event.go", "")
	for _, file := range []string{"../internal/event/data.go", "../internal/event/settings.go", "../internal/event/marker.go"} {
		for _, name := range constants(t, file, "") {
			if name != "started" {
				require.Contains(t, types, name)
			}
		}
	}
	require.Subset(t, types, constants(t, "../internal/conversation/event.go", "EventType"))
}

// constants returns the values of the string constants of a type in a file.
func constants(t *testing.T, file, of string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	var found []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		name := ""
		if id, ok := spec.Type.(*ast.Ident); ok {
			name = id.Name
		}
		if value, ok := spec.Values[0].(*ast.BasicLit); ok && value.Kind == token.STRING && name == of {
			found = append(found, strings.Trim(value.Value, `"`))
		}
		return true
	})
	slices.Sort(found)
	return found
}

func TestTimesMatchServerFormat(t *testing.T) {
	t.Parallel()
	at := client.Time{Time: time.Date(2026, 3, 4, 5, 6, 7, 80_000_000, time.FixedZone("east", 3600))}
	data, err := at.MarshalJSON()
	require.NoError(t, err)
	require.Equal(t, `"2026-03-04T04:06:07.080Z"`, string(data))
	var back client.Time
	require.NoError(t, back.UnmarshalJSON(data))
	require.True(t, back.Equal(at.Time))
	require.Error(t, back.UnmarshalJSON([]byte(`"yesterday"`)))
}
