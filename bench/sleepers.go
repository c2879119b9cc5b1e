package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// fillSessions inserts $1 sessions. Three in ten are asleep, the others have ended.
//
//go:embed sleepers.sql
var fillSessions string

// measureSleepers measures lists and the idle load of a system with very many sessions, and of one
// with none.
func measureSleepers(ctx context.Context, b *bench, s *section) (err error) {
	if err := b.release(ctx); err != nil { // an idle system is compared only with another idle one
		return err
	}
	empty, err := b.newSystem(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, empty.close(context.WithoutCancel(ctx))) }()
	full, err := b.newSystem(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, full.close(context.WithoutCancel(ctx))) }()

	b.logf("sleepers: storing %d sessions", b.options.Sleepers)
	began := time.Now()
	if err := full.fill(ctx, b.options.Sleepers); err != nil {
		return err
	}
	s.note("One system stores %d sessions, of which three in ten sleep and the others are terminated, and another stores none; storing them took %s. Lists are requests of the API for one page "+
		"of 50, each made %d times with different values. Idle cores are those of all processes of a system, both in the same %s, without any request.",
		b.options.Sleepers, show(time.Since(began)), listRounds, b.options.Idle)
	for _, l := range lists {
		if err := l.measure(ctx, full.client, empty.client, s); err != nil {
			return err
		}
	}

	if err := pause(ctx, b.options.Idle/6); err != nil { // connections and caches settle
		return err
	}
	fullBefore, emptyBefore, began := readCPU(full.pid()), readCPU(empty.pid()), time.Now()
	if err := pause(ctx, b.options.Idle); err != nil {
		return err
	}
	fullUsed, emptyUsed, took := readCPU(full.pid()).since(fullBefore), readCPU(empty.pid()).since(emptyBefore), time.Since(began)
	of := func(d time.Duration) value { return number(d.Seconds()/took.Seconds(), cores) }
	s.compare("idle, whole system", of(fullUsed.system()), "without sessions", of(emptyUsed.system()), exceedsBy(number(0.02, cores)))
	for _, k := range components {
		if fullUsed[k] > 0 || emptyUsed[k] > 0 {
			s.compare("idle: "+string(k), of(fullUsed[k]), "without sessions", of(emptyUsed[k]), noGoal)
		}
	}
	return nil
}

// fill stores sessions, and restarts the system so that Postgres has no pending checkpoint.
func (s *system) fill(ctx context.Context, sessions int) error {
	conn := s.bare.postgres
	for _, statement := range strings.Split(fillSessions, ";\n\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		statement = strings.ReplaceAll(statement, "$1", fmt.Sprint(sessions))
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	return s.restart(ctx)
}

// listRounds is the number of reads of each list.
const listRounds = 20

// list is one query for sessions.
type list struct {
	name  string
	query func(round int) url.Values
	goal  goal
	// holds reports whether a page satisfies the query, because an api of another version may
	// ignore unknown parameters. nil skips the check.
	holds func(items []object) bool
}

// inTeam reports whether all items have the requested metadata.
func inTeam(items []object) bool {
	return !slices.ContainsFunc(items, func(item object) bool {
		metadata, _ := item["metadata"].(object)
		return metadata["team"] != "t3"
	})
}

// few reports whether a page has at most the number of sessions with one value of a rare key.
func few(items []object) bool { return len(items) <= 3 }

// byActivity reports whether items are in the order of their last activity, the newest first.
func byActivity(items []object) bool {
	return slices.IsSortedFunc(items, func(a, b object) int {
		return strings.Compare(fmt.Sprint(b["lastActivityAt"]), fmt.Sprint(a["lastActivityAt"]))
	})
}

// olderThanADay reports whether no item is newer than the time of the query.
func olderThanADay(items []object) bool {
	yesterday := time.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)
	return !slices.ContainsFunc(items, func(item object) bool { return fmt.Sprint(item["createdAt"]) > yesterday })
}

func where(pairs ...string) func(int) url.Values {
	return func(int) url.Values {
		v := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			v.Set(pairs[i], pairs[i+1])
		}
		return v
	}
}

var (
	fast   = atMost(number(0.020, seconds))
	search = atMost(number(0.050, seconds))
	slow   = atMost(number(0.200, seconds))
)

var lists = []list{
	{name: "all, newest first", query: where(), goal: fast},
	{name: "by status, none", query: where("status", "running"), goal: fast},
	{name: "by status, three in ten", query: where("status", "hibernated"), goal: fast},
	{name: "by agent, one in a hundred", query: where("agent", "gemini-cli"), goal: fast},
	{name: "by status and agent", query: where("status", "hibernated", "agent", "gemini-cli"), goal: fast},
	{name: "by metadata, two in ten", query: where("metadata[team]", "t3"), goal: fast, holds: inTeam},
	{
		name: "by metadata, three sessions", goal: fast, holds: few,
		query: func(i int) url.Values { return where("metadata[ticket]", fmt.Sprintf("T-%d", 7000+i))(i) },
	},
	{
		name: "by time", goal: fast, holds: olderThanADay,
		query: func(i int) url.Values {
			return where("createdBefore", time.Now().Add(-time.Duration(i+24)*time.Hour).UTC().Format(time.RFC3339))(i)
		},
	},
	{name: "by metadata and status", query: where("metadata[team]", "t3", "status", "hibernated"), goal: slow, holds: inTeam},
	{name: "by activity", query: where("sort", "-lastActivityAt"), goal: slow, holds: byActivity},
	{name: "search: a common word", query: where("q", "login"), goal: search},
	{name: "search: two words", query: where("q", "login page"), goal: search},
	{name: "search: a number in one title", query: func(i int) url.Values { return where("q", fmt.Sprintf("#%d", 77000+i))(i) }, goal: search},
	{name: "search: part of an ID", query: func(i int) url.Values { return where("q", fmt.Sprintf("a3f5e%x", i%16))(i) }, goal: search},
	{name: "search: nothing", query: where("q", "nowhere to be found"), goal: search},
	{name: "search and status", query: where("q", "login page", "status", "hibernated"), goal: slow},
}

// measure reads the list from both systems alternately. It skips a list that the API does not
// support.
func (l list) measure(ctx context.Context, full, empty *client, s *section) error {
	figure, floor := &samples{}, &samples{}
	for i := range listRounds + 1 {
		query := l.query(i)
		query.Set("limit", "50")
		for _, of := range []struct {
			client *client
			into   *samples
		}{{full, figure}, {empty, floor}} {
			began := time.Now()
			page, err := of.client.call(ctx, http.MethodGet, "/api/sessions?"+query.Encode(), nil)
			if refused, ok := errors.AsType[*statusError](err); ok && refused.status == http.StatusBadRequest {
				s.skip(l.name, "the API refuses the query", l.goal)
				return nil
			}
			if err != nil {
				return err
			}
			if i > 0 { // the first one warms up
				of.into.add(time.Since(began))
			}
			if l.holds != nil && of.client == full && !l.holds(items(page)) {
				s.skip(l.name, "the API ignores the query", l.goal)
				return nil
			}
		}
	}
	s.compare(l.name, distribution(figure), "without sessions", distribution(floor), l.goal)
	return nil
}

// items returns the items of a page.
func items(page object) []object {
	var out []object
	list, _ := page["items"].([]any)
	for _, i := range list {
		if item, ok := i.(object); ok {
			out = append(out, item)
		}
	}
	return out
}
