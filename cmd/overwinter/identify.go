package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// newest selects the newest session, or the newest prompt of a session.
const newest = "@last"

// maxCandidates bounds the list in the error about an ambiguous ID.
const maxCandidates = 5

// shortened matches the beginning of an ID without its prefix. IDs begin with a time, so shorter
// beginnings would match too many IDs.
var shortened = regexp.MustCompile(`^[0-9a-f]{4,31}$`)

// sessionID resolves a session argument: a full ID, a unique beginning of an ID, or @last for the
// session created last by any client, which session list shows first. Other text is passed to the
// API.
func sessionID(ctx context.Context, api *client.Client, text string) (string, error) {
	if text == newest {
		page, err := api.SessionList(ctx, client.List{Limit: 1})
		if err == nil && len(page.Items) == 0 {
			err = fmt.Errorf("%s: no session exists yet", newest)
		}
		if err != nil {
			return "", err
		}
		return page.Items[0].ID, nil
	}
	digits := strings.TrimPrefix(text, session.SessionPrefix)
	if session.ValidID(session.SessionPrefix, text) || !shortened.MatchString(digits) {
		return text, nil
	}
	page, err := api.SessionList(ctx, client.List{Query: session.SessionPrefix + digits, Limit: 0})
	if err != nil {
		return "", err
	}
	found := candidatesFor(page.Items, session.SessionPrefix+digits, func(s client.Session) (string, string) {
		return s.ID, string(s.Status) + " " + terminal.OneLine(s.Title, terminal.TitleRunes)
	})
	return found.only("session", text)
}

// promptID resolves a prompt of a session in the same way. The full ID of a prompt may be any text.
func promptID(ctx context.Context, api *client.Client, sessionID, text string) (string, error) {
	digits := strings.TrimPrefix(text, session.PromptPrefix)
	if text != newest {
		if session.ValidID(session.PromptPrefix, text) || !shortened.MatchString(digits) {
			return text, nil
		}
		_, err := api.PromptGet(ctx, sessionID, text)
		if problem, ok := errors.AsType[*client.Error](err); !ok || problem.Code != client.CodePromptNotFound {
			return text, err
		}
	}
	page, err := api.PromptList(ctx, sessionID)
	if err != nil {
		return "", err
	}
	if text == newest {
		if len(page.Items) == 0 {
			return "", fmt.Errorf("%s: session %s has no prompt", newest, sessionID)
		}
		return page.Items[len(page.Items)-1].ID, nil
	}
	found := candidatesFor(page.Items, session.PromptPrefix+digits, func(p client.Prompt) (string, string) {
		return p.ID, string(p.Status) + " " + terminal.OneLine(p.Content, terminal.TitleRunes)
	})
	return found.only("prompt", text)
}

// questionID resolves a question of a session in the same way. An empty text selects the open
// question.
func questionID(ctx context.Context, api *client.Client, sessionID, text string) (string, error) {
	digits := strings.TrimPrefix(text, session.QuestionPrefix)
	if text != "" && (session.ValidID(session.QuestionPrefix, text) || !shortened.MatchString(digits)) {
		return text, nil
	}
	status := client.QuestionStatus("")
	if text == "" {
		status = client.QuestionOpen
	}
	page, err := api.QuestionList(ctx, sessionID, status)
	if err != nil {
		return "", err
	}
	found := candidatesFor(page.Items, session.QuestionPrefix+digits, func(q client.Question) (string, string) {
		return q.ID, string(q.Status) + " " + terminal.OneLine(q.Title, terminal.TitleRunes)
	})
	if text == "" && len(found) == 0 {
		return "", fmt.Errorf("no question of session %s is open", sessionID)
	}
	return found.only("question", text)
}

// candidate is an object whose ID may match.
type candidate struct{ id, about string }

type candidateList []candidate

func candidatesFor[T any](items []T, prefix string, describe func(T) (id, about string)) candidateList {
	var found candidateList
	for _, item := range items {
		if id, about := describe(item); strings.HasPrefix(id, prefix) {
			found = append(found, candidate{id, about})
		}
	}
	return found
}

// only returns the ID of the single candidate.
func (l candidateList) only(kind, text string) (string, error) {
	switch len(l) {
	case 1:
		return l[0].id, nil
	case 0:
		return "", fmt.Errorf("there is no %s whose ID begins with %s", kind, text)
	}
	var shown []string
	for _, c := range l[:min(len(l), maxCandidates)] {
		shown = append(shown, c.id+inBrackets(strings.TrimSpace(c.about)))
	}
	if more := len(l) - maxCandidates; more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	if text == "" {
		return "", fmt.Errorf("%d %ss are open, name one: %s", len(l), kind, strings.Join(shown, ", "))
	}
	return "", fmt.Errorf("%s is the beginning of %d %s IDs: %s", text, len(l), kind, strings.Join(shown, ", "))
}

// minShort is the number of digits of a shortened ID in tables: the digits of its time, to about 16
// ms.
const minShort = 11

// shortIDs returns the shortest beginnings of IDs that are unique in one table, without their
// prefixes. IDs chosen by clients are not shortened.
func shortIDs(prefix string, ids []string) func(id string) string {
	own := []string{}
	for _, id := range ids {
		if session.ValidID(prefix, id) {
			own = append(own, strings.TrimPrefix(id, prefix))
		}
	}
	slices.Sort(own)
	n := minShort
	for i := 1; i < len(own); i++ {
		for n < len(own[i]) && own[i-1] != own[i] && own[i-1][:n] == own[i][:n] {
			n++
		}
	}
	return func(id string) string {
		if !session.ValidID(prefix, id) {
			return id
		}
		return strings.TrimPrefix(id, prefix)[:n]
	}
}
