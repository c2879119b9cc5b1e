package tracer

import (
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Access is the access of processes to a mapped part of the machine.
type Access int

// The kinds of access.
const (
	ReadWrite Access = iota
	ReadOnly         // no changes
	Fixed            // files can be written to, but not created, removed or renamed
)

// Mapping shows a part of the machine at a path of a View.
type Mapping struct {
	Inside, Outside string // absolute and clean
	Access          Access
}

// View is a file system that consists of a tree and of parts of the machine. Paths in it are inside
// paths; their real locations are outside paths. It is safe for concurrent use.
type View struct {
	tree  string
	short string // short name of the tree, for limited lengths

	mu       sync.RWMutex
	mappings []Mapping // longest inside path first
}

// NewView returns a view of tree, an absolute path without symbolic links. short is a second,
// shorter path to it.
func NewView(tree, short string, mappings ...Mapping) *View {
	v := &View{tree: tree, short: short}
	for _, m := range mappings {
		v.Map(m)
	}
	return v
}

// Map adds a mapping, which hides others at the same path.
func (v *View) Map(m Mapping) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mappings = slices.Insert(slices.Clone(v.mappings), 0, m)
	slices.SortStableFunc(v.mappings, func(a, b Mapping) int { return len(b.Inside) - len(a.Inside) })
}

// Unmap removes the newest mapping at a path and returns it.
func (v *View) Unmap(inside string) (Mapping, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, m := range v.mappings {
		if m.Inside == inside {
			v.mappings = slices.Delete(slices.Clone(v.mappings), i, i+1)
			return m, true
		}
	}
	return Mapping{}, false
}

// below returns the part of p below dir.
func below(p, dir string) (string, bool) {
	if dir == "/" {
		return p, true
	}
	rest, ok := strings.CutPrefix(p, dir)
	return rest, ok && (rest == "" || rest[0] == '/')
}

// locate returns the outside path of an inside path without symbolic links.
func (v *View) locate(inside string) (string, Access) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, m := range v.mappings {
		if rest, ok := below(inside, m.Inside); ok {
			return m.Outside + rest, m.Access
		}
	}
	if inside == "/" {
		return v.tree, ReadWrite
	}
	return v.tree + inside, ReadWrite
}

// Inside returns the inside path of an outside path, if it is visible.
func (v *View) Inside(outside string) (string, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if rest, ok := below(outside, v.tree); ok {
		return path.Join("/", rest), true
	}
	best, found := Mapping{}, false
	for _, m := range v.mappings {
		if _, ok := below(outside, m.Outside); ok && (!found || len(m.Outside) > len(best.Outside)) {
			best, found = m, true
		}
	}
	if !found {
		return "", false
	}
	rest, _ := below(outside, best.Outside)
	return best.Inside + rest, true
}

// maxLinks is the kernel's limit.
const maxLinks = 40

// Process identifies the process that resolves a path: /proc/self depends on it.
type Process struct{ Group, Thread int }

// Place is the result of resolving a path.
type Place struct {
	Outside string
	Access  Access
}

// Resolve resolves an absolute path of the view, link by link, like the kernel would if the view
// were the root. It follows a link in the last component if follow is set. A missing file keeps its
// place, so that the kernel reports the right error.
func (v *View) Resolve(p string, follow bool, process Process) (Place, error) {
	if rest, ok := below(p, v.tree); ok { // a visible outside path
		p = "/" + rest
	} else if rest, ok := below(p, v.short); ok && v.short != "" {
		p = "/" + rest
	}
	slash := strings.HasSuffix(p, "/") && strings.Trim(p, "/") != ""
	w := walk{view: v, who: process, at: "/", rest: strings.Split(p, "/"), follow: follow || slash}
	place, err := w.run()
	if slash && err == nil && !strings.HasSuffix(place.Outside, "/") {
		place.Outside += "/"
	}
	return place, err
}

type walk struct {
	view   *View
	who    Process
	at     string // current directory, free of links
	rest   []string
	follow bool
	links  int
}

func (w *walk) run() (Place, error) {
	for len(w.rest) > 0 {
		name := w.rest[0]
		w.rest = w.rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			w.at = path.Dir(w.at)
			continue
		}
		last := w.isLast()
		if place, done := w.process(&name, last); done {
			return place, nil
		}
		switch name {
		case "": // step to the root
			w.at = "/"
			continue
		case ".": // no step
			continue
		}
		next := path.Join(w.at, name)
		if last && !w.follow {
			return w.place(next), nil
		}
		outside, _ := w.view.locate(next)
		target, err := readlink(outside)
		switch {
		case err == nil:
			if w.links++; w.links > maxLinks {
				return Place{}, unix.ELOOP
			}
			if strings.HasPrefix(target, "/") {
				w.at = "/"
				if rest, ok := below(target, w.view.tree); ok {
					target = rest
				}
			}
			w.rest = append(strings.Split(target, "/"), w.rest...)
		case errors.Is(err, unix.EINVAL): // not a link
			w.at = next
		default: // the kernel reports the error
			place := w.place(next)
			place.Outside = join(place.Outside, w.rest)
			return place, nil
		}
	}
	return w.place(w.at), nil
}

func (w *walk) isLast() bool {
	for _, name := range w.rest {
		if name != "" && name != "." {
			return false
		}
	}
	return true
}

func (w *walk) place(inside string) Place {
	outside, access := w.view.locate(inside)
	return Place{Outside: outside, Access: access}
}

// process handles the special entries of /proc: "self", and links without a path as target, which
// are left to the kernel.
func (w *walk) process(name *string, last bool) (Place, bool) {
	if w.at == "/proc" {
		if last && !w.follow {
			return Place{}, false
		}
		switch *name {
		case "self":
			*name = strconv.Itoa(w.who.Group)
		case "thread-self":
			*name = strconv.Itoa(w.who.Group) + "/task/" + strconv.Itoa(w.who.Thread)
		}
		return Place{}, false
	}
	rest, ok := strings.CutPrefix(w.at, "/proc/")
	if !ok || rest[0] < '0' || rest[0] > '9' {
		return Place{}, false
	}
	if *name == "root" && (!last || w.follow) {
		*name = ""
		return Place{}, false
	}
	link := path.Join(w.at, *name)
	if last && !w.follow {
		return w.place(link), true
	}
	target, err := readlink(link)
	if err != nil {
		return Place{}, false // an ordinary entry
	}
	inside, ok := w.view.Inside(target)
	switch {
	case ok && !last: // a descriptor or a current directory as the start
		w.at, *name = inside, "."
		return Place{}, false
	case ok:
		_, access := w.view.locate(inside)
		return Place{Outside: link, Access: access}, true
	default: // a target that is not visible, or has no name
		return Place{Outside: join(link, w.rest)}, true
	}
}

// join does not simplify "a/..", since "a" may not exist.
func join(p string, rest []string) string { return strings.Join(append([]string{p}, rest...), "/") }

func readlink(p string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlink(p, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
