// An agent in Go: one call of the model; its output is judged by a verifier.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	task, _ := io.ReadAll(os.Stdin)
	body, _ := json.Marshal(map[string]any{
		"model":    os.Getenv("LIGHTSTREAM_MODEL"),
		"messages": []any{map[string]string{"role": "user", "content": string(task)}},
	})
	request, _ := http.NewRequest("POST", os.Getenv("OPENAI_BASE_URL")+"/chat/completions", bytes.NewReader(body))
	request.Header.Set("authorization", "Bearer "+os.Getenv("OPENAI_API_KEY"))
	request.Header.Set("content-type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil || answer.StatusCode != 200 {
		fmt.Fprintln(os.Stderr, "no answer", err)
		os.Exit(3)
	}
	fmt.Println(string(task))
}
