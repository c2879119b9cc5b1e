package workspace

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/overwinter-dev/overwinter/internal/runner/regular"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// The stored index is read before the first prompt after a restore is delivered, and before a
// snapshot. As JSON, an index of 10,000 files took 40 ms to read.
//
//	magic
//	length, header: saved without its entries, as JSON
//	number of entries
//	per entry: flags, numbers, and strings with their lengths
//
// Numbers are varints.
const savedMagic = "overwinter workspace index 1\n"

// savedFile returns the path of the index, and legacyFile that of earlier releases, in JSON. The
// legacy file is kept: a runner of such a release may be started from the snapshot. That runner
// requests the list of stored files if the file is too old, and reads the session's first contents
// from it.
func savedFile(dir string) string  { return filepath.Join(dir, "workspace.index") }
func legacyFile(dir string) string { return filepath.Join(dir, "workspace.json") }

// flags of an entry.
const (
	flagDeleted = 1 << iota
	flagInitial
	flagKnown
	flagRacy
	flagThere
)

// minEntryBytes is the minimum size of an entry: flags, seven numbers and the lengths of four
// strings.
const minEntryBytes = 12

// readSaved reads the index stored in dir.
func readSaved(dir string) (saved, error) {
	data, err := regular.Read(savedFile(dir), maxSaved)
	if err == nil {
		return decodeSaved(string(data))
	}
	if !errors.Is(err, os.ErrNotExist) {
		return saved{}, err
	}
	if data, err = regular.Read(legacyFile(dir), maxSaved); err != nil {
		return saved{}, err
	}
	var s saved
	return s, json.Unmarshal(data, &s)
}

// writeSaved replaces the index stored in dir.
func writeSaved(dir string, s saved) error {
	data, err := encodeSaved(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	temp := savedFile(dir) + ".new"
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, savedFile(dir))
}

func encodeSaved(s saved) ([]byte, error) {
	entries := s.Entries
	s.Entries = nil
	header, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	size := len(savedMagic) + len(header) + 2*binary.MaxVarintLen64
	for path, e := range entries {
		size += minEntryBytes + 7*8 + len(path) + len(e.SHA256) + len(e.First) + len(e.Unsaved)
	}
	b := append(make([]byte, 0, size), savedMagic...)
	b = appendString(b, string(header))
	b = binary.AppendUvarint(b, uint64(len(entries)))
	for path, e := range entries {
		b = append(b, e.flags())
		b = binary.AppendVarint(b, e.Stat.Size)
		b = binary.AppendVarint(b, e.Stat.Modified)
		b = binary.AppendVarint(b, e.Stat.Changed)
		b = binary.AppendUvarint(b, e.Stat.Inode)
		b = binary.AppendUvarint(b, uint64(e.Stat.Mode))
		b = binary.AppendVarint(b, e.Seq)
		b = binary.AppendVarint(b, e.FirstSize)
		b = appendString(b, path)
		b = appendString(b, e.SHA256)
		b = appendString(b, e.First)
		b = appendString(b, string(e.Unsaved))
	}
	return b, nil
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func (e *entry) flags() (f byte) {
	set := func(flag byte, is bool) {
		if is {
			f |= flag
		}
	}
	set(flagDeleted, e.Deleted)
	set(flagInitial, e.Initial)
	set(flagKnown, e.Known)
	set(flagRacy, e.Racy)
	set(flagThere, e.There)
	return f
}

// decodeSaved decodes an index. Its strings alias data.
func decodeSaved(data string) (saved, error) {
	d := &decoder{rest: data}
	if d.take(uint64(len(savedMagic))) != savedMagic {
		return saved{}, errors.New("no index of a workspace")
	}
	var s saved
	if err := json.Unmarshal([]byte(d.string()), &s); err != nil {
		return saved{}, fmt.Errorf("the header of an index: %w", err)
	}
	n := d.uvarint()
	if n > uint64(len(d.rest)/minEntryBytes) {
		return saved{}, errors.New("the index states more entries than its size allows")
	}
	entries := make([]entry, n)
	s.Entries = make(map[string]*entry, n)
	for i := range entries {
		e := &entries[i]
		flags := d.byte()
		e.Deleted, e.Initial, e.Known = flags&flagDeleted != 0, flags&flagInitial != 0, flags&flagKnown != 0
		e.Racy, e.There = flags&flagRacy != 0, flags&flagThere != 0
		e.Stat.Size, e.Stat.Modified, e.Stat.Changed = d.varint(), d.varint(), d.varint()
		e.Stat.Inode, e.Stat.Mode = d.uvarint(), uint32(d.uvarint())
		e.Seq, e.FirstSize = d.varint(), d.varint()
		path := d.string()
		e.SHA256, e.First, e.Unsaved = d.string(), d.string(), workspacefile.Unsaved(d.string())
		s.Entries[path] = e
	}
	if d.failed || d.rest != "" {
		return saved{}, errors.New("an index is not whole")
	}
	return s, nil
}

// decoder decodes the parts of an index. After a missing part, all following parts are zero.
type decoder struct {
	rest   string
	failed bool
}

func (d *decoder) take(n uint64) string {
	if n > uint64(len(d.rest)) {
		d.rest, d.failed = "", true
		return ""
	}
	part := d.rest[:n]
	d.rest = d.rest[n:]
	return part
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != "" {
		return b[0]
	}
	return 0
}

func (d *decoder) string() string { return d.take(d.uvarint()) }

func (d *decoder) uvarint() (n uint64) {
	for i := 0; i < len(d.rest) && i < binary.MaxVarintLen64; i++ {
		n |= uint64(d.rest[i]&0x7f) << (7 * i)
		if d.rest[i] < 0x80 {
			d.rest = d.rest[i+1:]
			return n
		}
	}
	d.rest, d.failed = "", true
	return 0
}

func (d *decoder) varint() int64 {
	n := d.uvarint()
	return int64(n>>1) ^ -int64(n&1)
}
