package portable

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"time"
)

// Writer writes an archive. Its methods are called in the order of the entries. It is not safe for concurrent use.
type Writer struct {
	zip     *gzip.Writer
	tar     *tar.Writer
	entries []Entry
	bytes   int64
	agent   int
}

// NewWriter returns a writer of an archive.
func NewWriter(w io.Writer) *Writer {
	zip, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is a valid one
	return &Writer{zip: zip, tar: tar.NewWriter(zip), entries: []Entry{}}
}

// ErrFull reports that an entry exceeds the limits of an archive, which is unchanged.
var ErrFull = errors.New("the archive is full")

// Repository adds the bundle of the repository.
func (w *Writer) Repository(size int64, content io.Reader) error {
	return w.add(Entry{Name: RepositoryEntry, Size: size}, content)
}

// File adds a file of the workspace.
func (w *Writer) File(path string, mode fs.FileMode, size int64, content io.Reader) error {
	if err := checkPath(path); err != nil {
		return err
	}
	if len(w.entries) >= MaxWorkspaceEntries {
		return ErrFull
	}
	return w.add(Entry{Name: workspaceDir + path, Mode: mode.Perm(), Size: size}, content)
}

// Link adds a symbolic link of the workspace.
func (w *Writer) Link(path, target string) error {
	if err := checkPath(path); err != nil {
		return err
	}
	if !LinkStaysWithin(path, target) {
		return fmt.Errorf("the link %q leads out of the workspace", path)
	}
	if len(w.entries) >= MaxWorkspaceEntries {
		return ErrFull
	}
	sum := sha256.Sum256([]byte(target))
	e := Entry{Name: workspaceDir + path, Link: target, SHA256: hex.EncodeToString(sum[:])}
	err := w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: e.Name, Linkname: target, Mode: 0o777, Format: tar.FormatPAX, ModTime: time.Unix(0, 0)})
	w.entries = append(w.entries, e)
	return err
}

// AgentFile adds one of the agent's own files.
func (w *Writer) AgentFile(path string, size int64, content io.Reader) error {
	e := Entry{Name: agentDir + strconv.Itoa(w.agent), Path: path, Size: size}
	if err := checkAgentPath(path); err != nil {
		return err
	}
	err := w.add(e, content)
	if err == nil {
		w.agent++
	}
	return err
}

// Conversation adds the blocks of the conversation.
func (w *Writer) Conversation(size int64, content io.Reader) error {
	return w.add(Entry{Name: ConversationEntry, Size: size}, content)
}

func (w *Writer) add(e Entry, content io.Reader) error {
	if len(w.entries) >= maxEntries || e.Size < 0 || w.bytes+e.Size > MaxBytes {
		return ErrFull
	}
	w.bytes += e.Size
	err := w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: e.Name, Size: e.Size, Mode: int64(e.Mode.Perm() | 0o400), Format: tar.FormatPAX, ModTime: time.Unix(0, 0)})
	if err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w.tar, sum), io.LimitReader(content, e.Size))
	if err == nil && n < e.Size {
		err = fmt.Errorf("%s has %d bytes, and %d were announced", e.Name, n, e.Size)
	}
	e.SHA256 = hex.EncodeToString(sum.Sum(nil))
	w.entries = append(w.entries, e)
	return err
}

// Close adds the manifest, with the entries that were written, and completes the archive. It does
// not close the underlying writer.
func (w *Writer) Close(m Manifest) error {
	m.Format, m.Version, m.Entries = Format, Version, w.entries
	if err := m.check(); err != nil {
		return err
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(data) > maxManifest {
		return fmt.Errorf("the manifest has %d bytes; at most %d are allowed", len(data), maxManifest)
	}
	err = w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: manifestEntry, Size: int64(len(data)), Mode: 0o600, Format: tar.FormatPAX, ModTime: time.Unix(0, 0)})
	if err == nil {
		_, err = w.tar.Write(data)
	}
	return errors.Join(err, w.tar.Close(), w.zip.Close())
}
