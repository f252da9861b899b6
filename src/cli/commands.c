/* The command table. A new command is its cmd_<name>.c, a bit in opts.h and a row here. */
#include "cli/opts.h"

const sp_command sp_commands[] = {
    {"run", SP_CMD_RUN, "MODEL INPUT.jsonl", 2, 2, "run every row of INPUT through MODEL",
     "MODEL is a directory in Hugging Face layout (config.json, *.safetensors, tokenizer.json) or a GGUF file. INPUT "
     "is a file of JSON lines of one shape: {\"prompt\"} with \"system\"; OpenAI chat lines {\"messages\"}; or OpenAI "
     "batch lines {\"custom_id\", \"method\", \"url\", \"body\"}. A file may be packed (.gz, .zst); \"-\" reads "
     "standard input, \"sample\" is a built-in set.\n"
     "Each line that is not blank gives exactly one result line in the shape of the OpenAI batch output, with the same "
     "custom_id. A row that is wrong is a line with an error and does not disturb the others.\n"
     "Exit status: 0 done; 1 failed; 2 unusable input, before any work; 3 done, but some rows have errors; 75 stopped "
     "(SIGINT, SIGTERM, SIGHUP, --time-limit).\n"
     "However it ends, nothing that was computed is lost: the same command with the same -o goes on, to the token, as "
     "does spill resume.",
     sp_cmd_run},
    {"resume", SP_CMD_RESUME, "[RUN]", 0, 1, "go on with a job that was stopped, failed or killed",
     "RUN is an id that spill runs lists; without it, the newest unfinished job that can go on. Results are those of "
     "an undisturbed run, byte for byte: rows in flight keep their tokens. --memory, --threads and --rows stay as they "
     "were last given. A model, input or parameter that changed is refused, and nothing is touched. A job that read "
     "standard input needs the same bytes there again. Exit status "
     "as of spill run; 2 too when another process runs the job or there is none.",
     sp_cmd_resume},
    {"status", SP_CMD_STATUS, "[RUN]", 0, 1, "show how far a job is, from any terminal",
     "Without RUN, the newest that runs, else the newest.", sp_cmd_status},
    {"tail", SP_CMD_TAIL, "[RUN]", 0, 1, "follow a job's results as they come, until it ends",
     "Begins with the last ten rows; on a terminal the text of rows in flight grows below them. With --json, the "
     "result lines as they are. Without RUN, the newest that runs, else the newest.",
     sp_cmd_tail},
    {"runs", SP_CMD_RUNS, "", 0, 0, "list all jobs, the newest first",
     "Id, state (running, done, stopped, failed, died, broken), rows, model and results of each; one JSON line each "
     "with --json.",
     sp_cmd_runs},
    {"plan", SP_CMD_PLAN, "MODEL INPUT.jsonl", 2, 2, "show the plan and the estimate of a run, execute nothing",
     "Reads the model's headers and the rows, and prints what spill run would do: where the weights go, how many rows "
     "are in flight, how long it takes.",
     sp_cmd_plan},
    {"tokenize", SP_CMD_TOKENIZE, "MODEL_DIR INPUT.jsonl", 2, 2, "print token ids and rendered prompts",
     "One JSON line a row, in input order. A row {\"custom_id\", \"text\"} gives {\"custom_id\", \"tokens\", "
     "\"text\"}; a row of spill run gives {\"custom_id\", \"prompt\", \"tokens\"} or {\"custom_id\", \"error\"}, and "
     "exit "
     "status 3 at the end. tokenizer.json and tokenizer_config.json are enough; a GGUF file works too.",
     sp_cmd_tokenize},
    {"doctor", SP_CMD_DOCTOR, "", 0, 0, "tell what this machine is and what stops it",
     "Optional parts of this build, processor and instruction sets, memory and every limit on it, the directory of "
     "jobs, how files are read and what drives were measured, what fits. Exit status 1 when something stops a run.",
     sp_cmd_doctor},
    {"probe", SP_CMD_PROBE, "[DIR]", 0, 1, "measure the drive under DIR, memory and products",
     "Reads the weights of a model in DIR, or a test file of 2 GB that is written there and gone at the end, past the "
     "page cache, with several settings; takes a quarter of a minute. A rate that only memory can have given is "
     "refused with "
     "its reason, and the exit status is 1. What was measured is kept in $SPILL_HOME/machine.json, which spill plan "
     "and spill run read; --json prints it, for spill plan --machine elsewhere.",
     sp_cmd_probe},
    {"check", SP_CMD_CHECK, "FILE", 1, 1, "find a JSONL file's first bad row, with its line number",
     "Reads FILE as spill run would and reports the first row that would be an error; exit status 2 if there is one. "
     "With --model, rows are rendered, and their tokens counted, too.",
     sp_cmd_check},
    {"help", SP_CMD_HELP, "[COMMAND]", 0, 1, "show help of a command", "Without COMMAND, the list of commands.",
     sp_cmd_help},
};
const size_t sp_n_commands = sizeof sp_commands / sizeof *sp_commands;
