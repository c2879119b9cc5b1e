package attachment

// Bounds of the data stored with a session.
const (
	// MaxBytes is the largest attachment.
	MaxBytes = 10 << 20
	// MaxPromptBytes bounds the total size of the attachments of a prompt, and MaxPromptFiles their
	// number.
	MaxPromptBytes = 50 << 20
	MaxPromptFiles = 20
	// MaxPromptsBytes bounds the total size of the attachments of all prompts of a session, and
	// MaxPromptsFiles their number.
	MaxPromptsBytes = 1 << 30
	MaxPromptsFiles = 10_000
	// MaxImagesBytes bounds the total size of the images in tool results of a session. Further ones
	// are not stored.
	MaxImagesBytes = 512 << 20
	// MaxImages bounds their number.
	MaxImages = 10_000
)

// Info describes an attachment.
type Info struct {
	ID        string
	Name      string // a file name; empty if it has none
	MediaType string
	Bytes     int64
}

// Attachment is an attachment with its content.
type Attachment struct {
	Info
	Data []byte
}

// Batch has the attachments that an attempt at a run stores.
type Batch struct {
	SessionID   string
	RunID       string
	Generation  int64
	Token       string
	Attachments []Attachment
}
