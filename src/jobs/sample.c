/* The built-in set, INPUT `sample`: a dozen short questions that any instruction-tuned model can try, and that show
 * batching, stops and Unicode at work. */
#include "jobs/input.h"

/* clang-format off */
const char *const sp_sample_lines[] = {
    "{\"custom_id\":\"capital\",\"prompt\":\"What is the capital of France? Answer with one word.\",\"max_tokens\":16}",
    "{\"custom_id\":\"sum\",\"prompt\":\"What is 17 + 25? Answer with the number only.\",\"max_tokens\":16}",
    "{\"custom_id\":\"translate\",\"prompt\":\"Translate to German: Good morning, how are you?\",\"max_tokens\":32}",
    "{\"custom_id\":\"haiku\",\"prompt\":\"Write a haiku about the sea.\",\"max_tokens\":64}",
    "{\"custom_id\":\"planets\",\"prompt\":\"List the planets of the solar system, from the sun outwards.\",\"max_tokens\":96}",
    "{\"custom_id\":\"sql\",\"prompt\":\"Write an SQL query that counts the rows of a table named orders.\",\"max_tokens\":64}",
    "{\"custom_id\":\"json\",\"system\":\"Answer with JSON only.\",\"prompt\":\"Give the name and the age of a person, Ada, 36 years old.\",\"max_tokens\":48}",
    "{\"custom_id\":\"why-sky\",\"prompt\":\"Why is the sky blue? Two sentences.\",\"max_tokens\":96}",
    "{\"custom_id\":\"summary\",\"prompt\":\"Summarise in one sentence: The meeting was moved from Tuesday to Thursday since two colleagues are ill; the agenda stays as it is, and the minutes will be sent on Friday.\",\"max_tokens\":64}",
    "{\"custom_id\":\"sentiment\",\"prompt\":\"Is this review positive or negative? \\\"The battery died after two days.\\\" One word.\",\"max_tokens\":16}",
    "{\"custom_id\":\"unicode\",\"prompt\":\"What language is this, and what does it mean? \\u3042\\u308a\\u304c\\u3068\\u3046\",\"max_tokens\":48}",
    "{\"custom_id\":\"c\",\"prompt\":\"Write a C function that returns the larger of two ints.\",\"max_tokens\":96}",
};
/* clang-format on */
const size_t sp_n_sample_lines = sizeof sp_sample_lines / sizeof *sp_sample_lines;
