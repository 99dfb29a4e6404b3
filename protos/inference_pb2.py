"""Messages of inference.proto. Written by protos/generate.py; do not edit."""

from protos import private_pool

DESCRIPTOR = private_pool.load_file(
    b'\n\x0finference.proto\x12\tinference"\x13\n\x11ServerLiveRequest"(\n\x12ServerLiveResponse\x12'
    b'\x12\n\x04live\x18\x01 \x01(\x08R\x04live"\x14\n\x12ServerReadyRequest"+\n\x13ServerReadyResponse\x12\x14\n\x05read'
    b'y\x18\x01 \x01(\x08R\x05ready"A\n\x11ModelReadyRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\t'
    b'R\x07version"*\n\x12ModelReadyResponse\x12\x14\n\x05ready\x18\x01 \x01(\x08R\x05ready"\x17\n\x15ServerMetadataR'
    b'equest"f\n\x16ServerMetadataResponse\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07v'
    b'ersion\x12\x1e\n\nextensions\x18\x03 \x03(\tR\nextensions"D\n\x14ModelMetadataRequest\x12\x12\n\x04name\x18\x01'
    b' \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version"\xcf\x02\n\x15ModelMetadataResponse\x12\x12\n\x04name\x18\x01'
    b' \x01(\tR\x04name\x12\x1a\n\x08versions\x18\x02 \x03(\tR\x08versions\x12\x1a\n\x08platform\x18\x03 \x01(\tR\x08platform\x12G\n\x06in'
    b'puts\x18\x04 \x03(\x0b2/.inference.ModelMetadataResponse.TensorMetadataR\x06inputs\x12I\n\x07o'
    b'utputs\x18\x05 \x03(\x0b2/.inference.ModelMetadataResponse.TensorMetadataR\x07outputs\x1aV'
    b'\n\x0eTensorMetadata\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08datatype\x18\x02 \x01(\tR\x08datatype\x12\x14\n\x05shap'
    b'e\x18\x03 \x03(\x03R\x05shape"\xd7\x01\n\x0eInferParameter\x12\x1f\n\nbool_param\x18\x01 \x01(\x08H\x00R\tboolParam\x12!\n\x0bin'
    b't64_param\x18\x02 \x01(\x03H\x00R\nint64Param\x12#\n\x0cstring_param\x18\x03 \x01(\tH\x00R\x0bstringParam\x12#\n\x0cdo'
    b'uble_param\x18\x04 \x01(\x01H\x00R\x0bdoubleParam\x12#\n\x0cuint64_param\x18\x05 \x01(\x04H\x00R\x0buint64ParamB\x12\n\x10'
    b'parameter_choice"\xc3\x02\n\x13InferTensorContents\x12#\n\rbool_contents\x18\x01 \x03(\x08R\x0cboolCon'
    b'tents\x12!\n\x0cint_contents\x18\x02 \x03(\x05R\x0bintContents\x12%\n\x0eint64_contents\x18\x03 \x03(\x03R\rint64C'
    b"ontents\x12#\n\ruint_contents\x18\x04 \x03(\rR\x0cuintContents\x12'\n\x0fuint64_contents\x18\x05 \x03(\x04R\x0eu"
    b'int64Contents\x12#\n\rfp32_contents\x18\x06 \x03(\x02R\x0cfp32Contents\x12#\n\rfp64_contents\x18\x07 \x03('
    b'\x01R\x0cfp64Contents\x12%\n\x0ebytes_contents\x18\x08 \x03(\x0cR\rbytesContents"\x9d\x08\n\x11ModelInferReq'
    b'uest\x12\x1d\n\nmodel_name\x18\x01 \x01(\tR\tmodelName\x12#\n\rmodel_version\x18\x02 \x01(\tR\x0cmodelVersion'
    b'\x12\x0e\n\x02id\x18\x03 \x01(\tR\x02id\x12L\n\nparameters\x18\x04 \x03(\x0b2,.inference.ModelInferRequest.Param'
    b'etersEntryR\nparameters\x12E\n\x06inputs\x18\x05 \x03(\x0b2-.inference.ModelInferRequest.Inf'
    b'erInputTensorR\x06inputs\x12Q\n\x07outputs\x18\x06 \x03(\x0b27.inference.ModelInferRequest.Inf'
    b'erRequestedOutputTensorR\x07outputs\x12,\n\x12raw_input_contents\x18\x07 \x03(\x0cR\x10rawInputCo'
    b'ntents\x1a\xcd\x02\n\x10InferInputTensor\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08datatype\x18\x02 \x01(\tR\x08datat'
    b'ype\x12\x14\n\x05shape\x18\x03 \x03(\x03R\x05shape\x12]\n\nparameters\x18\x04 \x03(\x0b2=.inference.ModelInferRequ'
    b'est.InferInputTensor.ParametersEntryR\nparameters\x12:\n\x08contents\x18\x05 \x01(\x0b2\x1e.inf'
    b'erence.InferTensorContentsR\x08contents\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03ke'
    b'y\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.inference.InferParameterR\x05value:\x028\x01\x1a\xf3\x01\n\x1aInferRequeste'
    b'dOutputTensor\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12g\n\nparameters\x18\x02 \x03(\x0b2G.inference.ModelI'
    b'nferRequest.InferRequestedOutputTensor.ParametersEntryR\nparameters\x1aX\n\x0fPa'
    b'rametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.inference.InferParamete'
    b'rR\x05value:\x028\x01\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.infer'
    b'ence.InferParameterR\x05value:\x028\x01"\xdf\x05\n\x12ModelInferResponse\x12\x1d\n\nmodel_name\x18\x01 \x01('
    b'\tR\tmodelName\x12#\n\rmodel_version\x18\x02 \x01(\tR\x0cmodelVersion\x12\x0e\n\x02id\x18\x03 \x01(\tR\x02id\x12M\n\npar'
    b'ameters\x18\x04 \x03(\x0b2-.inference.ModelInferResponse.ParametersEntryR\nparameters'
    b'\x12I\n\x07outputs\x18\x05 \x03(\x0b2/.inference.ModelInferResponse.InferOutputTensorR\x07outp'
    b'uts\x12.\n\x13raw_output_contents\x18\x06 \x03(\x0cR\x11rawOutputContents\x1a\xd0\x02\n\x11InferOutputTenso'
    b'r\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08datatype\x18\x02 \x01(\tR\x08datatype\x12\x14\n\x05shape\x18\x03 \x03(\x03R\x05shape\x12'
    b'_\n\nparameters\x18\x04 \x03(\x0b2?.inference.ModelInferResponse.InferOutputTensor.Par'
    b'ametersEntryR\nparameters\x12:\n\x08contents\x18\x05 \x01(\x0b2\x1e.inference.InferTensorConten'
    b'tsR\x08contents\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.infer'
    b'ence.InferParameterR\x05value:\x028\x01\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05v'
    b'alue\x18\x02 \x01(\x0b2\x19.inference.InferParameterR\x05value:\x028\x01"~\n!SystemSharedMemoryRe'
    b'gisterRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x10\n\x03key\x18\x02 \x01(\tR\x03key\x12\x16\n\x06offset\x18\x03 \x01(\x04R\x06off'
    b'set\x12\x1b\n\tbyte_size\x18\x04 \x01(\x04R\x08byteSize"$\n"SystemSharedMemoryRegisterResponse"9'
    b'\n#SystemSharedMemoryUnregisterRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name"&\n$SystemShare'
    b'dMemoryUnregisterResponse"B\n\x12ModelConfigRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07v'
    b'ersion\x18\x02 \x01(\tR\x07version"E\n\x13ModelConfigResponse\x12.\n\x06config\x18\x01 \x01(\x0b2\x16.inference'
    b'.ModelConfigR\x06config"\xb9\x01\n\x12ModelInstanceGroup\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x14\n\x05count'
    b'\x18\x02 \x01(\x05R\x05count\x126\n\x04kind\x18\x04 \x01(\x0e2".inference.ModelInstanceGroup.KindR\x04kind"A\n'
    b'\x04Kind\x12\r\n\tKIND_AUTO\x10\x00\x12\x0c\n\x08KIND_GPU\x10\x01\x12\x0c\n\x08KIND_CPU\x10\x02\x12\x0e\n\nKIND_MODEL\x10\x03"f\n\nMode'
    b'lInput\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x120\n\tdata_type\x18\x02 \x01(\x0e2\x13.inference.DataTypeR\x08data'
    b'Type\x12\x12\n\x04dims\x18\x04 \x03(\x03R\x04dims"g\n\x0bModelOutput\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x120\n\tdata_type'
    b'\x18\x02 \x01(\x0e2\x13.inference.DataTypeR\x08dataType\x12\x12\n\x04dims\x18\x03 \x03(\x03R\x04dims"\xaa\x02\n\x10ModelQueue'
    b'Policy\x12P\n\x0etimeout_action\x18\x01 \x01(\x0e2).inference.ModelQueuePolicy.TimeoutActio'
    b'nR\rtimeoutAction\x12@\n\x1cdefault_timeout_microseconds\x18\x02 \x01(\x04R\x1adefaultTimeoutMi'
    b'croseconds\x124\n\x16allow_timeout_override\x18\x03 \x01(\x08R\x14allowTimeoutOverride\x12$\n\x0emax_'
    b'queue_size\x18\x04 \x01(\rR\x0cmaxQueueSize"&\n\rTimeoutAction\x12\n\n\x06REJECT\x10\x00\x12\t\n\x05DELAY\x10\x01"\xe4'
    b'\x02\n\x14ModelDynamicBatching\x120\n\x14preferred_batch_size\x18\x01 \x03(\x05R\x12preferredBatchSiz'
    b'e\x12?\n\x1cmax_queue_delay_microseconds\x18\x02 \x01(\x04R\x19maxQueueDelayMicroseconds\x12+\n\x11pr'
    b"eserve_ordering\x18\x03 \x01(\x08R\x10preserveOrdering\x12'\n\x0fpriority_levels\x18\x04 \x01(\x04R\x0epriori"
    b'tyLevels\x124\n\x16default_priority_level\x18\x05 \x01(\x04R\x14defaultPriorityLevel\x12M\n\x14defaul'
    b't_queue_policy\x18\x06 \x01(\x0b2\x1b.inference.ModelQueuePolicyR\x12defaultQueuePolicy"3\n'
    b'\x0eModelParameter\x12!\n\x0cstring_value\x18\x01 \x01(\tR\x0bstringValue"\xdb\x04\n\x0bModelConfig\x12\x12\n\x04na'
    b'me\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08platform\x18\x02 \x01(\tR\x08platform\x12$\n\x0emax_batch_size\x18\x04 \x01(\x05R\x0cmaxB'
    b'atchSize\x12+\n\x05input\x18\x05 \x03(\x0b2\x15.inference.ModelInputR\x05input\x12.\n\x06output\x18\x06 \x03(\x0b2\x16.'
    b'inference.ModelOutputR\x06output\x12D\n\x0einstance_group\x18\x07 \x03(\x0b2\x1d.inference.ModelI'
    b'nstanceGroupR\rinstanceGroup\x124\n\x16default_model_filename\x18\x08 \x01(\tR\x14defaultMode'
    b'lFilename\x12L\n\x10dynamic_batching\x18\x0b \x01(\x0b2\x1f.inference.ModelDynamicBatchingH\x00R\x0f'
    b'dynamicBatching\x12F\n\nparameters\x18\x0e \x03(\x0b2&.inference.ModelConfig.ParametersEn'
    b'tryR\nparameters\x12\x18\n\x07backend\x18\x11 \x01(\tR\x07backend\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01('
    b'\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.inference.ModelParameterR\x05value:\x028\x01B\x13\n\x11schedulin'
    b'g_choice"F\n\x16ModelStatisticsRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR'
    b'\x07version"V\n\x17ModelStatisticsResponse\x12;\n\x0bmodel_stats\x18\x01 \x03(\x0b2\x1a.inference.Mod'
    b'elStatisticsR\nmodelStats"9\n\x11StatisticDuration\x12\x14\n\x05count\x18\x01 \x01(\x04R\x05count\x12\x0e\n\x02n'
    b's\x18\x02 \x01(\x04R\x02ns"\xf2\x03\n\x0fInferStatistics\x126\n\x07success\x18\x01 \x01(\x0b2\x1c.inference.StatisticDu'
    b'rationR\x07success\x120\n\x04fail\x18\x02 \x01(\x0b2\x1c.inference.StatisticDurationR\x04fail\x122\n\x05que'
    b'ue\x18\x03 \x01(\x0b2\x1c.inference.StatisticDurationR\x05queue\x12A\n\rcompute_input\x18\x04 \x01(\x0b2\x1c.i'
    b'nference.StatisticDurationR\x0ccomputeInput\x12A\n\rcompute_infer\x18\x05 \x01(\x0b2\x1c.infere'
    b'nce.StatisticDurationR\x0ccomputeInfer\x12C\n\x0ecompute_output\x18\x06 \x01(\x0b2\x1c.inference.'
    b'StatisticDurationR\rcomputeOutput\x129\n\tcache_hit\x18\x07 \x01(\x0b2\x1c.inference.Statisti'
    b'cDurationR\x08cacheHit\x12;\n\ncache_miss\x18\x08 \x01(\x0b2\x1c.inference.StatisticDurationR\tc'
    b'acheMiss"N\n\x0bMemoryUsage\x12\x12\n\x04type\x18\x01 \x01(\tR\x04type\x12\x0e\n\x02id\x18\x02 \x01(\x03R\x02id\x12\x1b\n\tbyte_size'
    b'\x18\x03 \x01(\x04R\x08byteSize"\x80\x02\n\x14InferBatchStatistics\x12\x1d\n\nbatch_size\x18\x01 \x01(\x04R\tbatchSize'
    b'\x12A\n\rcompute_input\x18\x02 \x01(\x0b2\x1c.inference.StatisticDurationR\x0ccomputeInput\x12A\n\rc'
    b'ompute_infer\x18\x03 \x01(\x0b2\x1c.inference.StatisticDurationR\x0ccomputeInfer\x12C\n\x0ecomput'
    b'e_output\x18\x04 \x01(\x0b2\x1c.inference.StatisticDurationR\rcomputeOutput"\xfa\x02\n\x0fModelSta'
    b'tistics\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version\x12%\n\x0elast_inference\x18'
    b"\x03 \x01(\x04R\rlastInference\x12'\n\x0finference_count\x18\x04 \x01(\x04R\x0einferenceCount\x12'\n\x0fexecuti"
    b'on_count\x18\x05 \x01(\x04R\x0eexecutionCount\x12C\n\x0finference_stats\x18\x06 \x01(\x0b2\x1a.inference.Infe'
    b'rStatisticsR\x0einferenceStats\x12@\n\x0bbatch_stats\x18\x07 \x03(\x0b2\x1f.inference.InferBatchS'
    b'tatisticsR\nbatchStats\x129\n\x0cmemory_usage\x18\x08 \x03(\x0b2\x16.inference.MemoryUsageR\x0bmem'
    b'oryUsage*\xfa\x01\n\x08DataType\x12\x10\n\x0cTYPE_INVALID\x10\x00\x12\r\n\tTYPE_BOOL\x10\x01\x12\x0e\n\nTYPE_UINT8\x10\x02\x12\x0f'
    b'\n\x0bTYPE_UINT16\x10\x03\x12\x0f\n\x0bTYPE_UINT32\x10\x04\x12\x0f\n\x0bTYPE_UINT64\x10\x05\x12\r\n\tTYPE_INT8\x10\x06\x12\x0e\n\nTYPE'
    b'_INT16\x10\x07\x12\x0e\n\nTYPE_INT32\x10\x08\x12\x0e\n\nTYPE_INT64\x10\t\x12\r\n\tTYPE_FP16\x10\n\x12\r\n\tTYPE_FP32\x10\x0b\x12\r'
    b'\n\tTYPE_FP64\x10\x0c\x12\x0f\n\x0bTYPE_STRING\x10\r\x12\r\n\tTYPE_BF16\x10\x0e2\xa8\x05\n\x14GRPCInferenceService\x12K'
    b'\n\nServerLive\x12\x1c.inference.ServerLiveRequest\x1a\x1d.inference.ServerLiveRespons'
    b'e"\x00\x12N\n\x0bServerReady\x12\x1d.inference.ServerReadyRequest\x1a\x1e.inference.ServerRead'
    b'yResponse"\x00\x12K\n\nModelReady\x12\x1c.inference.ModelReadyRequest\x1a\x1d.inference.Mode'
    b'lReadyResponse"\x00\x12W\n\x0eServerMetadata\x12 .inference.ServerMetadataRequest\x1a!.i'
    b'nference.ServerMetadataResponse"\x00\x12T\n\rModelMetadata\x12\x1f.inference.ModelMeta'
    b'dataRequest\x1a .inference.ModelMetadataResponse"\x00\x12N\n\x0bModelConfig\x12\x1d.inferen'
    b'ce.ModelConfigRequest\x1a\x1e.inference.ModelConfigResponse"\x00\x12Z\n\x0fModelStatisti'
    b'cs\x12!.inference.ModelStatisticsRequest\x1a".inference.ModelStatisticsRespons'
    b'e"\x00\x12K\n\nModelInfer\x12\x1c.inference.ModelInferRequest\x1a\x1d.inference.ModelInferRe'
    b'sponse"\x00b\x06proto3',
    'inference.proto',
)

_classes = private_pool.message_classes(DESCRIPTOR, __name__)
ServerLiveRequest = _classes['ServerLiveRequest']
ServerLiveResponse = _classes['ServerLiveResponse']
ServerReadyRequest = _classes['ServerReadyRequest']
ServerReadyResponse = _classes['ServerReadyResponse']
ModelReadyRequest = _classes['ModelReadyRequest']
ModelReadyResponse = _classes['ModelReadyResponse']
ServerMetadataRequest = _classes['ServerMetadataRequest']
ServerMetadataResponse = _classes['ServerMetadataResponse']
ModelMetadataRequest = _classes['ModelMetadataRequest']
ModelMetadataResponse = _classes['ModelMetadataResponse']
InferParameter = _classes['InferParameter']
InferTensorContents = _classes['InferTensorContents']
ModelInferRequest = _classes['ModelInferRequest']
ModelInferResponse = _classes['ModelInferResponse']
SystemSharedMemoryRegisterRequest = _classes['SystemSharedMemoryRegisterRequest']
SystemSharedMemoryRegisterResponse = _classes['SystemSharedMemoryRegisterResponse']
SystemSharedMemoryUnregisterRequest = _classes['SystemSharedMemoryUnregisterRequest']
SystemSharedMemoryUnregisterResponse = _classes['SystemSharedMemoryUnregisterResponse']
ModelConfigRequest = _classes['ModelConfigRequest']
ModelConfigResponse = _classes['ModelConfigResponse']
ModelInstanceGroup = _classes['ModelInstanceGroup']
ModelInput = _classes['ModelInput']
ModelOutput = _classes['ModelOutput']
ModelQueuePolicy = _classes['ModelQueuePolicy']
ModelDynamicBatching = _classes['ModelDynamicBatching']
ModelParameter = _classes['ModelParameter']
ModelConfig = _classes['ModelConfig']
ModelStatisticsRequest = _classes['ModelStatisticsRequest']
ModelStatisticsResponse = _classes['ModelStatisticsResponse']
StatisticDuration = _classes['StatisticDuration']
InferStatistics = _classes['InferStatistics']
MemoryUsage = _classes['MemoryUsage']
InferBatchStatistics = _classes['InferBatchStatistics']
ModelStatistics = _classes['ModelStatistics']
