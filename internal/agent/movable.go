package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/overwinter-dev/overwinter/internal/runner/regular"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// Movable is an adapter whose agent stores sessions on a person's machine that can be moved to a
// sandbox and back. The agent itself can resume them there.
type Movable interface {
	// Local returns the sessions on a machine.
	Local(Machine) Local
}

// Machine is the machine of a person who has the agent's program.
type Machine struct {
	Home   string                   // home directory
	Getenv func(name string) string // reads environment variables
	// Run runs a program in a directory and returns its output.
	Run func(ctx context.Context, dir, program string, args ...string) ([]byte, error)
	// Sandbox is the agent's place in a sandbox.
	Sandbox Place
}

// Place is the home and the working directory of an agent.
type Place struct{ Home, Workspace string }

// Local accesses the sessions of an agent on a person's machine. Directories are absolute and
// contain no symbolic links.
type Local interface {
	// Where describes for people where the sessions of a directory are stored.
	Where(dir string) string
	// List returns the sessions of a directory, the newest first.
	List(ctx context.Context, dir string) ([]LocalSession, error)
	// Pack returns a session of a directory in the form that it has in a sandbox.
	Pack(ctx context.Context, dir, id string) (Moved, error)
	// Unpack creates a session of the directory from the files of a sandbox, and returns its id. It
	// replaces no other session: if the id is taken, the session gets a new one. If it fails, it
	// leaves no files. Permissions granted in the sandbox are dropped: the settings of the machine
	// apply.
	Unpack(ctx context.Context, dir string, m Moved) (id string, err error)
	// Resume returns the command that continues a session in its directory.
	Resume(id string) []string
	// Settings returns lower-case patterns of the files of a directory that configure the program's
	// permissions there, and the programs that it starts.
	Settings() []string
}

// LocalSession is a session on a person's machine.
type LocalSession struct {
	ID string
	At time.Time // time of the last write
}

// Moved is a session being moved, in the form that it has in a sandbox.
type Moved struct {
	// MemoryID is the session id under which the adapter finds the files.
	MemoryID string
	// Files are the transcripts, with their paths in the sandbox.
	Files []transcript.File
	// Note informs the agent where it is now. Unpack appends it to the agent's memory as a reminder
	// that no person wrote.
	Note string
}

// ErrNoMemory means that a session contains no conversation that the agent's program could resume.
var ErrNoMemory = errors.New("the agent remembers nothing")

// ReadLocal reads the files of a session on a person's machine, without an incomplete last line.
// Their total size must be small enough to be moved.
func ReadLocal(names []string) ([]transcript.File, error) {
	var files []transcript.File
	left := int64(transcript.MaxRevertBytes)
	for _, name := range names {
		data, err := regular.Read(name, left)
		if errors.Is(err, regular.ErrTooLarge) {
			return nil, fmt.Errorf("the files of the session have more than %d bytes, which is too much to be moved: %s", transcript.MaxRevertBytes, name)
		}
		if err != nil {
			return nil, err
		}
		left -= int64(len(data))
		files = append(files, transcript.File{Path: name, Data: data})
	}
	return files, nil
}

// WholeLines returns a file without an incomplete last line.
func WholeLines(data []byte) []byte { return data[:bytes.LastIndexByte(data, '\n')+1] }

// WriteLocal writes new files, all or none. It replaces no file.
func WriteLocal(files []transcript.File) (err error) {
	var written []string
	defer func() {
		if err != nil {
			for _, name := range written {
				err = errors.Join(err, os.Remove(name))
			}
		}
	}()
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
			return err
		}
		out, err := os.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s exists already; move it away, or pull into another directory", f.Path)
		}
		if err != nil {
			return err
		}
		written = append(written, f.Path)
		_, err = out.Write(f.Data)
		if err = errors.Join(err, out.Close()); err != nil {
			return err
		}
	}
	return nil
}
