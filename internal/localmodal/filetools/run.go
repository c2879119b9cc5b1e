package filetools

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// arguments is the union of the commands' arguments.
type arguments struct {
	Path        string   `json:"path"`
	Parents     bool     `json:"parents"`      // MakeDirectory: create missing parents, accept an existing directory
	Recursive   bool     `json:"recursive"`    // Remove, Watch
	Filter      []string `json:"filter"`       // Watch: event types to report, nil for all
	TimeoutSecs *int     `json:"timeout_secs"` // Watch: nil for no end
}

// Run executes one command and returns the exit code.
func Run(command string, stdin io.Reader, stdout, stderr io.Writer) int {
	if err := run(command, stdin, stdout); err != nil {
		return report(stderr, err)
	}
	return 0
}

func run(command string, stdin io.Reader, stdout io.Writer) error {
	var request map[string]arguments
	if err := json.Unmarshal([]byte(command), &request); err != nil {
		return fmt.Errorf("parse command: %w", err)
	}
	if len(request) != 1 {
		return fmt.Errorf("expected one command, got %d", len(request))
	}
	for name, args := range request {
		switch name {
		case "WriteFile":
			return writeFile(args.Path, stdin)
		case "ReadFile":
			return readFile(args.Path, stdout)
		case "ListFiles":
			return listFiles(args.Path, stdout)
		case "Stat":
			return stat(args.Path, stdout)
		case "MakeDirectory":
			return makeDirectory(args.Path, args.Parents)
		case "Remove":
			return remove(args.Path, args.Recursive)
		case "Watch":
			return watch(args, stdin, stdout)
		default:
			return kindError{"NotSupported", fmt.Errorf("unknown command %q", name)}
		}
	}
	return nil
}

func writeFile(path string, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrExist) {
			return kindError{"NotDirectory", err}
		}
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}

func readFile(path string, out io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = &fs.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
	}
	if err == nil {
		_, err = io.Copy(out, f)
	}
	return errors.Join(err, f.Close())
}

func makeDirectory(path string, parents bool) error {
	if parents {
		return os.MkdirAll(path, 0o755)
	}
	return os.Mkdir(path, 0o755)
}

func remove(path string, recursive bool) error {
	if !recursive {
		return os.Remove(path)
	}
	if _, err := os.Lstat(path); err != nil {
		return err // RemoveAll would accept a missing path
	}
	return os.RemoveAll(path)
}
