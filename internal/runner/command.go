package runner

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"github.com/overwinter-dev/overwinter/internal/manifest"
	"github.com/overwinter-dev/overwinter/internal/transcript"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// PingRequest is the stdin of ping.
type PingRequest struct {
	Token string `json:"token"`
	// Wait is how long ping waits for a runner that is not serving yet.
	Wait time.Duration `json:"wait,omitempty"` // nanoseconds
}

// Ping is a runner's description of itself.
type Ping struct {
	Version  int    `json:"version"` // protocol version
	PID      int    `json:"pid"`
	Agent    bool   `json:"agent"` // the agent's process is running
	AgentPID int    `json:"agentPid,omitempty"`
	Run      string `json:"run,omitempty"` // the open run
	Sealed   bool   `json:"sealed"`
	// Watch is how the workspace is watched; empty until a worker requests it.
	Watch Watch `json:"watch,omitempty"`
	// Found is the digest of the workspace as the runner found it when it started; empty if it is not known or an agent may have
	// changed the workspace since. See manifest.Tree.
	Found string `json:"found,omitempty"`
}

// Watch is how a runner notices changes in the workspace.
type Watch string

// The kinds of watch.
const (
	WatchInotify Watch = "inotify"
	WatchPoll    Watch = "poll"
)

// Ping asks whether the runner is serving.
func (p Paths) Ping(r PingRequest) Exec {
	return Exec{Argv: []string{p.Binary, "ping", "--dir", p.State}, Stdin: mustJSON(r)}
}

// ParsePing decodes the stdout of ping.
func ParsePing(stdout []byte) (Ping, error) { return parse[Ping]("ping", stdout) }

// AbortRequest is the stdin of abort.
type AbortRequest struct {
	Token     string    `json:"token,omitempty"`
	Run       string    `json:"run"`
	Interrupt Interrupt `json:"interrupt"`
}

// Abort is the result of an abort.
type Abort struct {
	// Reached reports whether the agent received the abort, or will receive it as soon as it has
	// the prompt of a run that has not started. If false, no turn of the run can be aborted:
	// another run has begun, the sandbox was sealed, or the agent has exited.
	Reached bool `json:"reached"`
}

// Abort aborts the turn of a run without a link.
func (p Paths) Abort(r AbortRequest) Exec {
	return Exec{Argv: []string{p.Binary, "abort", "--dir", p.State, "--run", r.Run}, Stdin: mustJSON(r)}
}

// ParseAbort decodes the stdout of abort.
func ParseAbort(stdout []byte) (Abort, error) { return parse[Abort]("abort", stdout) }

// SealRequest is the stdin of seal.
type SealRequest struct {
	Token string `json:"token,omitempty"`
	// Known reports how much of each transcript file is stored. Everything after that is sent.
	Known []transcript.Position `json:"known,omitempty"`
	// Transcripts are the patterns of the agent's files. If empty, those of the newest launch are
	// used.
	Transcripts []string `json:"transcripts,omitempty"`
	// Grace is how long the agent may take to exit after its stdin was closed, and again after
	// SIGTERM, before it is killed. 0 means two seconds.
	Grace time.Duration `json:"grace,omitempty"` // nanoseconds
	// OpenRun, if not nil, is the open run in an earlier answer to ping: the seal is refused as stale, and
	// changes nothing, if another run has begun, or the sandbox was sealed, since. Runners of earlier releases ignore it.
	OpenRun *string `json:"openRun,omitempty"`
	// Workspace is the directory in which to look for a repository. Paths.Seal sets it.
	Workspace string `json:"workspace,omitempty"`
	// FilesFrom reports how much of the workspace's history is stored. If the runner needs the list
	// of stored files, it seals nothing, and the request is repeated with Files and KnownFiles.
	// Runners of earlier releases ignore it: they seal without the workspace.
	FilesFrom *workspacefile.Position `json:"filesFrom,omitempty"`
	// Files is FilesFrom when the list of stored files is included. Both are nil if the runner must
	// not send changes of the workspace.
	Files      *workspacefile.Position `json:"files,omitempty"`
	KnownFiles []workspacefile.Known   `json:"knownFiles,omitempty"`
}

// Seal describes the content of a sealed sandbox.
type Seal struct {
	// Manifest contains everything except LastSeq, which only the event log knows.
	Manifest  manifest.Manifest `json:"manifest"`
	Run       string            `json:"run,omitempty"` // the newest run
	LastFrame int64             `json:"lastFrame"`     // of that run; -1 if it has none
	// Files reports whether changes of the workspace were sent. If it is false and the request had
	// FilesFrom, the seal is not complete.
	Files bool `json:"files,omitempty"`
}

// Sealed is the runner's answer to the seal command, which adds the manifest and the diff.
type Sealed struct {
	Files     []string `json:"files"` // the agent's files
	Run       string   `json:"run"`
	LastFrame int64    `json:"lastFrame"`
	DiffKey   string   `json:"diffKey,omitempty"` // key of the diff to take
	// ListFiles reports that nothing was sealed, because the runner needs the list of stored files.
	ListFiles bool `json:"listFiles,omitempty"`
	// Tree describes the workspace without a repository. Nil: the command lists it.
	Tree *manifest.Tree `json:"tree,omitempty"`
}

// Seal stops the agent and everything that it started, sends the parts of the transcripts that the
// worker lacks, syncs journal and transcripts to disk, and returns the manifest. Sealing again
// gives the same answer.
func (p Paths) Seal(r SealRequest) Exec {
	r.Workspace = p.Workspace
	return Exec{Argv: []string{p.Binary, "seal", "--dir", p.State}, Stdin: mustJSON(r)}
}

// SealLine is one line of the stdout of seal: segments, then changes of the workspace, then the
// seal.
type SealLine struct {
	Segment *Segment      `json:"segment,omitempty"`
	Begun   *FilesBegun   `json:"begun,omitempty"`
	Changed *FileChanged  `json:"changed,omitempty"`
	Bounded *FilesBounded `json:"bounded,omitempty"`
	Diff    *Diff         `json:"diff,omitempty"`
	Seal    *Seal         `json:"seal,omitempty"`
}

// message returns the message in a line, or nil for the line with the seal.
func (l SealLine) message() Message {
	switch {
	case l.Segment != nil:
		return l.Segment
	case l.Begun != nil:
		return l.Begun
	case l.Changed != nil:
		return l.Changed
	case l.Bounded != nil:
		return l.Bounded
	case l.Diff != nil:
		return l.Diff
	}
	return nil
}

// ReadSeal reads the stdout of seal up to the seal, which is its last line, and passes every message
// to store in order: Segment, FilesBegun, FileChanged, FilesBounded and Diff. It fails if the seal
// is missing, or a line has more than maxSealLine bytes.
func ReadSeal(stdout io.Reader, store func(Message) error) (Seal, error) {
	r := bufio.NewReaderSize(stdout, 64<<10)
	var buffer []byte
	for {
		data, err := readLine(r, buffer[:0], maxSealLine)
		if errors.Is(err, io.EOF) && len(data) == 0 {
			return Seal{}, errors.New("seal ended without a manifest")
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return Seal{}, fmt.Errorf("read answer of seal: %w", err)
		}
		var line SealLine
		if err := json.Unmarshal(data, &line); err != nil {
			return Seal{}, fmt.Errorf("read answer of seal: %w", err)
		}
		if buffer = data; cap(buffer) > 4<<20 {
			buffer = nil // release the buffer after a large line, because the next line may be small
		}
		if m := line.message(); m != nil {
			if err := store(m); err != nil {
				return Seal{}, err
			}
		}
		if line.Seal != nil {
			return *line.Seal, nil
		}
	}
}

// readLine appends a line without its newline to data. It returns io.EOF with the last one.
func readLine(r *bufio.Reader, data []byte, most int) ([]byte, error) {
	for {
		part, err := r.ReadSlice('\n')
		if len(data)+len(part) > most {
			return nil, fmt.Errorf("a line has more than %d bytes", most)
		}
		data = append(data, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(data, []byte("\n")), err
		}
	}
}

// VerifyRequest is the stdin of verify.
type VerifyRequest struct {
	Manifest  manifest.Manifest `json:"manifest"`
	Workspace string            `json:"workspace"` // set by Paths.Verify
	State     string            `json:"state"`     // set by Paths.Verify
	// Ping also asks whether the runner is serving. Runners of earlier releases ignore it.
	Ping *PingRequest `json:"ping,omitempty"`
}

// Names in a Verification in addition to file paths.
const (
	GitHead    = "git:head"    // the repository's HEAD
	GitChanges = "git:changes" // its uncommitted changes
)

// Verification reports how a sandbox differs from a manifest. Missing and Mismatched are never nil.
type Verification struct {
	Missing    []string `json:"missing"`    // paths, or GitHead if the repository is missing
	Mismatched []string `json:"mismatched"` // paths, GitHead, GitChanges
	// Longer lists files that begin with exactly the bytes that the manifest describes.
	Longer []string `json:"longer,omitempty"`
	// Found describes the current state of the mismatched files.
	Found []manifest.File `json:"found,omitempty"`
	// Runner is the answer to the request's ping.
	Runner *Ping `json:"runner,omitempty"`
	// Tree reports how the workspace differs from the manifest's tree; nil if the manifest has
	// none.
	Tree *manifest.TreeDifference `json:"tree,omitempty"`
}

// Verify compares the sandbox with a manifest.
func (p Paths) Verify(m manifest.Manifest) Exec { return p.VerifyRunning(m, nil) }

// VerifyRunning is Verify and Ping in one command; ping may be nil.
func (p Paths) VerifyRunning(m manifest.Manifest, ping *PingRequest) Exec {
	return Exec{Argv: []string{p.Binary, "verify"}, Stdin: mustJSON(p.VerifyRequest(m, ping))}
}

// VerifyRequest returns the request of VerifyRunning.
func (p Paths) VerifyRequest(m manifest.Manifest, ping *PingRequest) VerifyRequest {
	return VerifyRequest{Manifest: m, Workspace: p.Workspace, State: p.State, Ping: ping}
}

// ParseVerify decodes the stdout of verify.
func ParseVerify(stdout []byte) (Verification, error) { return parse[Verification]("verify", stdout) }

// Put returns the command line that writes files. WritePut writes its stdin.
func (p Paths) Put() []string { return []string{p.Binary, "put"} }

// Written is the result of put.
type Written struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// ParsePut decodes the stdout of put.
func ParsePut(stdout []byte) (Written, error) { return parse[Written]("put", stdout) }

// PutFile is a file for put.
type PutFile struct {
	Path string // absolute
	Size int64
	// Content yields Size bytes in pieces. Each piece is valid until the next one.
	Content iter.Seq2[[]byte, error]
}

// WritePut writes the stdin of put. Each file replaces an existing one atomically, with mode 0600.
// It keeps no more in memory than Content does.
func WritePut(stdin io.Writer, files []PutFile) error {
	w := bufio.NewWriterSize(stdin, 64<<10)
	for _, f := range files {
		if err := f.write(w); err != nil {
			return fmt.Errorf("put %s: %w", f.Path, err)
		}
	}
	if err := WriteMessage(w, &End{Files: len(files)}); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	return w.Flush()
}

func (f PutFile) write(w io.Writer) error {
	if err := WriteMessage(w, &File{Path: f.Path, Size: f.Size}); err != nil {
		return err
	}
	left := f.Size
	for piece, err := range f.Content {
		if err != nil {
			return err
		}
		if left -= int64(len(piece)); left < 0 {
			break
		}
		for part := range slices.Chunk(piece, MaxSegment) {
			if err := WriteMessage(w, &Data{Bytes: part}); err != nil {
				return err
			}
		}
	}
	if left != 0 {
		return fmt.Errorf("its content does not have %d bytes", f.Size)
	}
	return nil
}

func parse[T any](command string, stdout []byte) (T, error) {
	var v T
	if err := json.Unmarshal(stdout, &v); err != nil {
		return v, fmt.Errorf("read answer of %s: %w", command, err)
	}
	return v, nil
}

// mustJSON encodes a request of this package, which cannot fail.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
