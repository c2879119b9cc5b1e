package geminibridge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/overwinter-dev/overwinter/internal/agent/gemini/geminiformat"
)

// environment returns the program's environment: the bridge's own, without the settings, which it
// writes to the program's directory dir.
func environment(dir string) ([]string, error) {
	var env []string
	raw := ""
	for _, e := range os.Environ() {
		if value, ok := strings.CutPrefix(e, geminiformat.EnvSettings+"="); ok {
			raw = value
		} else {
			env = append(env, e)
		}
	}
	if raw == "" {
		return env, nil
	}
	if os.Getenv(geminiformat.SecretVertex) == "true" {
		raw = strings.Replace(raw, `"selectedType":"gemini-api-key"`, `"selectedType":"vertex-ai"`, 1)
	}
	if err := writeSettings(dir, []byte(raw)); err != nil {
		return nil, fmt.Errorf("write the settings: %w", err)
	}
	return env, nil
}

// writeSettings merges settings over the user's settings in dir. It keeps a copy of the user's
// settings next to the notebooks, so that settings of an earlier launch do not remain. The program
// also has a file for settings that override the user's, but reads it only if other users cannot
// write to any directory above it.
func writeSettings(dir string, settings []byte) error {
	name := filepath.Join(dir, "settings.json")
	own := filepath.Join(dir, geminiformat.NotebookDir, "settings.json")
	users := filepath.Join(dir, geminiformat.NotebookDir, "settings-of-user.json")
	have, err := readIfThere(name)
	if err != nil {
		return err
	}
	last, err := readIfThere(own)
	if err != nil {
		return err
	}
	if last == nil || !bytes.Equal(have, last) {
		if have == nil {
			have = []byte("{}")
		}
		if err := os.WriteFile(users, have, 0o600); err != nil {
			return err
		}
	}
	base, err := readIfThere(users)
	if err != nil {
		return err
	}
	var defaults, overrides map[string]any
	_ = json.Unmarshal(base, &defaults) // ignore invalid settings, as the program does
	if err := json.Unmarshal(settings, &overrides); err != nil {
		return err
	}
	merged, err := json.Marshal(merge(defaults, overrides))
	if err != nil {
		return err
	}
	for _, file := range []string{own, name} {
		if err := os.WriteFile(file, merged, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func readIfThere(name string) ([]byte, error) {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// merge merges over into under, object by object.
func merge(base, overrides map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range base {
		out[k] = v
	}
	for k, v := range overrides {
		a, isObject := out[k].(map[string]any)
		b, alike := v.(map[string]any)
		if isObject && alike {
			v = merge(a, b)
		}
		out[k] = v
	}
	return out
}
