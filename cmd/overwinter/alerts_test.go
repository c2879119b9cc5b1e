package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// alert is one rule of docs/operations/alerts.yaml.
type alert struct {
	Alert       string
	Expr        string
	Labels      map[string]string
	Annotations map[string]string
}

func readAlerts(t *testing.T) (alerts []alert) {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations/alerts.yaml")
	require.NoError(t, err)
	var file struct{ Groups []struct{ Rules []alert } }
	require.NoError(t, yaml.Unmarshal(text, &file))
	for _, group := range file.Groups {
		alerts = append(alerts, group.Rules...)
	}
	require.NotEmpty(t, alerts)
	return alerts
}

// TestEveryAlertHasRunbook compares the alerts with the sections of docs/operations.md, both ways.
func TestEveryAlertHasRunbook(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	var sections, names []string
	for _, heading := range regexp.MustCompile(`(?m)^### (Overwinter\w+)$`).FindAllStringSubmatch(string(text), -1) {
		sections = append(sections, heading[1])
	}
	for _, a := range readAlerts(t) {
		names = append(names, a.Alert)
		require.Equal(t, "docs/operations.md#"+strings.ToLower(a.Alert), a.Annotations["runbook"])
		require.Contains(t, []string{"critical", "warning", "info"}, a.Labels["severity"], a.Alert)
		require.NotEmpty(t, a.Annotations["summary"], a.Alert)
	}
	require.Equal(t, names, sections, "in the same order")
}

// TestAlertsAndDashboardUseExistingMetrics also checks that labels in selectors are those of the metric.
func TestAlertsAndDashboardUseExistingMetrics(t *testing.T) {
	t.Parallel()
	var expressions []string
	for _, a := range readAlerts(t) {
		expressions = append(expressions, a.Expr)
	}
	text, err := os.ReadFile("../../docs/operations/dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Type    string
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	for _, p := range dashboard.Panels {
		require.True(t, p.Type == "row" || len(p.Targets) > 0, p.Title)
		for _, target := range p.Targets {
			expressions = append(expressions, target.Expr)
		}
	}
	labels := map[string]string{}
	for _, m := range registeredMetrics(t) {
		name, of, _ := strings.Cut(strings.TrimSuffix(m, "}"), "{")
		labels[name] = "," + of + ",job,instance,le,"
	}
	used := map[string]bool{}
	for _, e := range expressions {
		require.Equal(t, strings.Count(e, "("), strings.Count(e, ")"), e)
		for _, s := range regexp.MustCompile(`(overwinter_[a-z_]+)(?:\{([^}]*)\})?`).FindAllStringSubmatch(e, -1) {
			name := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(s[1], "")
			require.Contains(t, labels, name, e)
			used[name] = true
			for _, label := range regexp.MustCompile(`([a-z_]+)(?:=~|!=|!~|=)"`).FindAllStringSubmatch(s[2], -1) {
				require.Contains(t, labels[name], ","+label[1]+",", e)
			}
		}
	}
	for name := range labels {
		require.True(t, used[name], "no alert and no panel shows %s", name)
	}
}

// TestDashboardFollowsRulesOfGrafanasLinter makes the checks of Grafana's dashboard-linter.
func TestDashboardFollowsRulesOfGrafanasLinter(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations/dashboard.json")
	require.NoError(t, err)
	type source struct{ Type, UID string }
	var dashboard struct {
		Editable   bool
		Templating struct {
			List []struct{ Name, Type, Query any }
		}
		Panels []struct {
			Type, Title, Description string
			Datasource               source
			Targets                  []struct{ Expr string }
			FieldConfig              struct{ Defaults struct{ Unit string } }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	require.False(t, dashboard.Editable)
	variables := dashboard.Templating.List
	require.Equal(t, []any{"datasource", "job", "instance"}, []any{variables[0].Name, variables[1].Name, variables[2].Name})
	rates := regexp.MustCompile(`\b(?:rate|irate|increase)\([^()]*\[([^\]]*)\]\)`)
	for _, p := range dashboard.Panels {
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Title)
		require.NotEmpty(t, p.Description, p.Title)
		require.NotEmpty(t, p.FieldConfig.Defaults.Unit, p.Title)
		require.Equal(t, source{"prometheus", "$datasource"}, p.Datasource, p.Title)
		for _, target := range p.Targets {
			require.Contains(t, target.Expr, `job=~"$job",instance=~"$instance"`, p.Title)
			for _, window := range rates.FindAllStringSubmatch(target.Expr, -1) {
				require.Equal(t, "$__rate_interval", window[1], target.Expr)
			}
			if regexp.MustCompile(`_(total|bucket|count|sum)\{`).MatchString(target.Expr) {
				require.Regexp(t, rates, target.Expr, "a counter without its rate")
			}
		}
	}
}
