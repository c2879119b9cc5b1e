package attachment

// Bounds of what is stored with a session.
const (
	// MaxBytes is the largest attachment.
	MaxBytes = 10 << 20
	// MaxPromptBytes bounds the attachments of a prompt together, and MaxPromptFiles their number.
	MaxPromptBytes = 50 << 20
	MaxPromptFiles = 20
	// MaxPromptsBytes bounds the attachments of all prompts of a session together, and MaxPromptsFiles their number.
	MaxPromptsBytes = 1 << 30
	MaxPromptsFiles = 10_000
	// MaxImagesBytes bounds the images in results of tools of a session together. Further ones are not stored.
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

// Batch is what an attempt at a run stores.
type Batch struct {
	SessionID   string
	RunID       string
	Generation  int64
	Token       string
	Attachments []Attachment
}
