package localmodal

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// layerUse counts the uses of layers and archives that may not be in any record: those of images
// that are being made or read. A held layer is not collected. Starts and snapshots continue while
// unused layers are being collected.
type layerUse struct {
	mu   sync.Mutex // held while unused layers are collected
	held map[string]int
}

// hold is a use of layers. Its methods must be called from one goroutine.
type hold struct {
	use   *layerUse
	names []string
}

// add holds further layers, or archives, by name.
func (h *hold) add(names ...string) {
	h.use.mu.Lock()
	defer h.use.mu.Unlock()
	h.addLocked(names...)
}

func (h *hold) addLocked(names ...string) {
	if h.use.held == nil {
		h.use.held = map[string]int{}
	}
	for _, name := range names {
		h.use.held[name]++
	}
	h.names = append(h.names, names...)
}

// release ends the use. It may be called more than once.
func (h *hold) release() {
	h.use.mu.Lock()
	defer h.use.mu.Unlock()
	for _, name := range h.names {
		if h.use.held[name]--; h.use.held[name] == 0 {
			delete(h.use.held, name)
		}
	}
	h.names = nil
}

// newLayer returns the name of a layer that is about to be created, which is held from the start.
func (h *hold) newLayer() string {
	name := newID("ly")
	h.add(name)
	return name
}

// holdNothing returns an empty hold, to which layers are added later.
func (s *Server) holdNothing() *hold { return &hold{use: &s.layers} }

// holdImage returns an image and holds its layers. If the image is deleted meanwhile, its files
// stay.
func (s *Server) holdImage(id string) (imageRecord, *hold, error) {
	h := s.holdNothing()
	s.layers.mu.Lock()
	defer s.layers.mu.Unlock()
	im, err := s.image(id)
	if err != nil {
		return imageRecord{}, h, err
	}
	h.addLocked(im.Root.Layers...)
	if im.Archive != "" {
		h.addLocked(im.Archive)
	}
	return im, h, nil
}

// holdRoot holds the layers of a sandbox that has not ended.
func (s *Server) holdRoot(sb *sandbox) (*hold, error) {
	h := s.holdNothing()
	s.layers.mu.Lock()
	defer s.layers.mu.Unlock()
	r := sb.record()
	if r.ended() {
		return h, status.Errorf(codes.NotFound, "sandbox %s has ended", r.ID)
	}
	h.addLocked(r.Root.Layers...)
	return h, nil
}
